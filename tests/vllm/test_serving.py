"""Prompts under way on vLLM's loop: together to the end, and what vLLM raises in our words."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.exceptions import QueueOverflowError, VLLMValidationError
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from quaver.engine.job import Reading
from quaver.errors import BadRequest, EngineFault, Expired, Overloaded, QuaverError, Unavailable
from quaver.prompts.encoded import Encoded, EncodedQuestion
from quaver.vllm_plugin.joint_reads import JointAsk
from quaver.vllm_plugin.serving import VllmEngine


@dataclass(frozen=True, eq=False)
class Ask:
    """A prompt that fails with ``error``, or waits for ever."""

    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    tokens: int = 1

    async def read(self, *_: object) -> Reading:
        try:
            if self.error is None:
                await asyncio.Event().wait()
            assert self.error is not None
            raise self.error
        finally:
            self.ended.set()


@pytest.fixture
def engine() -> Iterator[VllmEngine]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running: Any = SimpleNamespace(is_running=True, errored=False)
    yield VllmEngine(running, loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (QueueOverflowError(), Overloaded),
        (EngineDeadError(), Unavailable),
        (VLLMValidationError("no"), BadRequest),
        (EngineGenerateError(), EngineFault),
        (RuntimeError("no"), EngineFault),
        (EngineFault("as it is"), EngineFault),
    ],
)
def test_what_vllm_raises_ends_the_request_alone(engine: VllmEngine, error: Exception, ours: type[QuaverError]) -> None:
    other, neighbour = Ask(), Ask()
    waits = engine.submit([other], 0, None)
    with pytest.raises(ours):
        engine.submit([neighbour, Ask(error)], 0, None).result(60)
    assert neighbour.ended.wait(60), "the rest of a request that failed is aborted"
    assert not other.ended.is_set()
    waits.cancel()
    assert other.ended.wait(60), "a caller who leaves takes its prompts along"
    assert engine.stats()["jobs_failed"] == 1


def test_time_that_is_over(engine: VllmEngine) -> None:
    with pytest.raises(Expired):
        engine.submit([Ask()], 0, time.monotonic() + 0.01).result(60)
    assert engine.stats()["jobs_dropped"] == 1


@pytest.mark.parametrize(
    ("pooled", "message"), [(torch.empty(0), "0 numbers for 2 options"), (torch.tensor([1.0, torch.nan]), "not finite")]
)
def test_a_pooled_output_that_is_no_answer(pooled: torch.Tensor, message: str) -> None:
    """The pooler of one request must not raise, so it says by an empty output that it could not read a record."""

    async def encode(*_: object, **__: object) -> AsyncIterator[PoolingRequestOutput[PoolingOutput]]:
        yield PoolingRequestOutput("id", PoolingOutput(pooled), [1, 2, 3, 4], 0, True)

    question = EncodedQuestion("noul", (1, 2), ((2, 3), (3, 4)), ("true", "false"))
    ask = JointAsk(Encoded((1, 2, 3, 4), (question,), media_start=0, state_end=1), None, "")
    client: Any = SimpleNamespace(encode=encode)
    with pytest.raises(EngineFault, match=message):
        asyncio.run(ask.read(client, "id", 0))
