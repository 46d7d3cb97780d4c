"""The engine's promises: every accepted job ends, failures stay alone, callers who leave cost nothing."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from quaver.engine import Engine, Policy, Reading
from quaver.engine.whole import WholeProgress, WholeReader
from quaver.errors import EngineFault, Overloaded, Unavailable


@dataclass(frozen=True)
class Text:
    """A prompt; equal ones are read once."""

    text: str

    @property
    def tokens(self) -> int:
        return len(self.text)


class Gate:
    """Reads texts: waits until opened, fails where told, remembers what it read."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()
        self.seen: list[str] = []
        self.shrunk = 0

    def read(self, prompt: Text) -> Reading:
        self.entered.set()
        assert self.opened.wait(10)
        self.seen.append(prompt.text)
        match prompt.text:
            case "fail":
                raise RuntimeError("no")
            case "nan":
                return Reading((torch.tensor([0.0, float("nan")]),), 1)
            case "die":
                raise SystemExit
        return Reading((torch.tensor([float(prompt.tokens)]),), prompt.tokens)

    def stats(self) -> dict[str, int]:
        return {}

    def shrink(self) -> None:
        self.shrunk += 1


Texts = Engine[Text, WholeProgress[Text]]


@contextmanager
def engine(max_jobs: int = 8, max_tokens: int = 1000, **policy: Any) -> Iterator[tuple[Texts, Gate]]:
    gate = Gate()
    # One prompt a step, so that what is read next can be seen.
    running = Engine(WholeReader(gate), Policy(**{"step_tokens": 1, **policy}), max_jobs, max_tokens)
    try:
        yield running, gate
    finally:
        gate.opened.set()
        running.close()


def texts(*names: str) -> list[Text]:
    return list(map(Text, names))


def test_prompts_of_a_job_come_back_in_order() -> None:
    with engine() as (running, gate):
        gate.opened.set()
        done = running.submit(texts("a", "bbb", "cc")).result(10)
        assert [reading.logits[0].item() for reading in done.readings] == [1, 3, 2]
        assert running.stats()["tokens_computed"] == 6


@pytest.mark.parametrize("bad", ["fail", "nan"])
def test_a_failing_job_fails_alone(bad: str) -> None:
    with engine() as (running, gate):
        jobs = [running.submit(texts(name)) for name in ("a", bad, "b")]
        gate.opened.set()
        assert jobs[0].result(10) and jobs[2].result(10)
        with pytest.raises(EngineFault):
            jobs[1].result(10)
        assert running.ready


def test_a_caller_who_leaves_is_dropped() -> None:
    with engine() as (running, gate):
        first = running.submit(texts("first", "second prompt of the first"))
        assert gate.entered.wait(10)
        waiting = running.submit(texts("left"))
        assert first.cancel() and waiting.cancel()
        last = running.submit(texts("last"))
        gate.opened.set()
        last.result(10)
        assert gate.seen == ["first", "last"]
        assert running.stats()["jobs_waiting"] == 0
        with pytest.raises(CancelledError):
            waiting.result()


def test_a_full_queue_refuses_and_recovers() -> None:
    with engine(max_jobs=2) as (running, gate):
        jobs: list[Future[object]] = [running.submit(texts(name)) for name in "ab"]  # type: ignore[misc]
        with pytest.raises(Overloaded, match="the limit is 2") as refused:
            running.submit(texts("c"))
        assert refused.value.retry_after >= 1
        jobs[1].cancel()
        jobs.append(running.submit(texts("d")))  # type: ignore[arg-type]
        gate.opened.set()
        assert jobs[0].result(10) and jobs[2].result(10)


def test_closing_answers_what_was_accepted() -> None:
    with engine() as (running, gate):
        jobs = [running.submit(texts(name)) for name in "abc"]
        closing = threading.Thread(target=running.close)
        closing.start()
        gate.opened.set()
        closing.join(10)
        assert all(job.result(10) for job in jobs)
        with pytest.raises(Unavailable):
            running.submit(texts("late"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dying_thread_fails_everyone_at_once() -> None:
    with engine() as (running, gate):
        jobs = [running.submit(texts(name)) for name in ("die", "waiting", "waiting too")]
        gate.opened.set()
        for job in jobs:
            with pytest.raises(Unavailable, match="died"):
                job.result(10)
        assert not running.ready
