"""vLLM's engine in the place of ours: prompts of ``quaver.prompts`` in, readings out.

What a prompt asks of vLLM is its own business (``label_reads``, ``joint_reads``); here is what all have in common:
they run on vLLM's event loop, end together, and fail in our words.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

from vllm.engine.protocol import EngineClient
from vllm.exceptions import GracefulHTTPError, RetryableRequestError, VLLMClientError
from vllm.v1.engine.exceptions import EngineDeadError

from quaver.engine.job import Finished, Reading
from quaver.errors import BadRequest, EngineFault, Expired, Overloaded, QuaverError, Unavailable

Output = TypeVar("Output")


class VllmPrompt(Hashable, Protocol):
    """A prompt that knows how vLLM is asked for it."""

    @property
    def tokens(self) -> int: ...

    async def read(self, client: EngineClient, request_id: str, priority: int) -> Reading:
        """Ask, wait and take the answer apart. Cancelling this aborts what vLLM does for it.

        Raises EngineFault for an answer that is none, and whatever vLLM raises.
        """
        ...


class VllmEngine:
    """See ``quaver.decider.family.PromptEngine``. ``loop`` is the one that ``client`` lives on.

    vLLM schedules, batches and reuses prefixes; closing is its own, and so is what waits and what runs.
    """

    def __init__(self, client: EngineClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._counts = Counter(jobs_done=0, jobs_failed=0, jobs_dropped=0, tokens_computed=0, tokens_reused=0)
        self._open = True

    @property
    def ready(self) -> bool:
        return self._open and self._client.is_running and not self._client.errored

    def submit(self, prompts: Sequence[VllmPrompt], priority: int, deadline: float | None) -> Future[Finished]:
        if not self.ready:
            raise Unavailable("vLLM's engine has stopped; start the server again")
        return asyncio.run_coroutine_threadsafe(self._answer(prompts, priority, deadline), self._loop)

    def stats(self) -> dict[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        self._open = False

    async def _answer(self, prompts: Sequence[VllmPrompt], priority: int, deadline: float | None) -> Finished:
        """The readings of all prompts, in order; the first that fails ends the others."""
        began = time.monotonic()
        request_id = f"decision-{uuid.uuid4().hex}"
        try:
            async with _until(deadline):
                with _in_our_words():
                    readings = await _together(
                        [prompt.read(self._client, f"{request_id}-{i}", priority) for i, prompt in enumerate(prompts)]
                    )
        except (Expired, asyncio.CancelledError):
            self._counts["jobs_dropped"] += 1
            raise
        except QuaverError:
            self._counts["jobs_failed"] += 1
            raise
        self._counts["jobs_done"] += 1
        self._counts["tokens_computed"] += sum(reading.computed for reading in readings)
        self._counts["tokens_reused"] += sum(reading.reused for reading in readings)
        # vLLM does not say how long a pooled prompt waited, so its queue and its passes count as one.
        return Finished(tuple(readings), 0.0, time.monotonic() - began, 0.0)


async def final(outputs: AsyncIterator[Output]) -> Output:
    """The last of what vLLM gives for one of its requests."""
    last: Output | None = None
    async for output in outputs:
        last = output
    if last is None:
        raise EngineFault("vLLM ended a request without an answer; its log says more")
    return last


async def _together(reads: Sequence[Coroutine[Any, Any, Reading]]) -> list[Reading]:
    tasks = [asyncio.ensure_future(read) for read in reads]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def _until(deadline: float | None) -> AsyncIterator[None]:
    """Expired when ``deadline``, a time of ``time.monotonic``, comes first."""
    try:
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise Expired("the answer was not there within the time that the request allowed") from None


@contextmanager
def _in_our_words() -> Iterator[None]:
    """What vLLM raises, as an exception of our tree."""
    try:
        yield
    except (QuaverError, asyncio.CancelledError, TimeoutError):
        raise
    except EngineDeadError as error:
        raise Unavailable("vLLM's engine has died; start the server again") from error
    except (GracefulHTTPError, RetryableRequestError) as error:
        raise Overloaded(f"vLLM takes no more now: {error}") from error
    except VLLMClientError as error:
        raise BadRequest(f"vLLM does not take this request: {error}") from error
    except Exception as error:
        raise EngineFault(f"vLLM failed with {type(error).__name__}: {error}; its log says more") from error
