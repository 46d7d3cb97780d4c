"""The engine's promises: every accepted job ends, failures stay alone, callers who leave cost nothing."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager

import pytest
import torch

from quaver.engine import Engine, Reading
from quaver.errors import EngineFault, Overloaded, Unavailable


class Gate:
    """A reader of text prompts: waits until opened, fails where told, remembers what it read."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def read(self, prompt: str) -> Reading:
        self.entered.set()
        assert self.opened.wait(10)
        self.seen.append(prompt)
        match prompt:
            case "fail":
                raise RuntimeError("no")
            case "nan":
                return Reading((torch.tensor([0.0, float("nan")]),), 1)
            case "die":
                raise SystemExit
        return Reading((torch.tensor([float(len(prompt))]),), len(prompt))


@contextmanager
def engine(max_jobs: int = 8) -> Iterator[tuple[Engine[str], Gate]]:
    gate = Gate()
    running = Engine(gate, max_jobs)
    try:
        yield running, gate
    finally:
        gate.opened.set()
        running.close()


def test_prompts_of_a_job_come_back_in_order() -> None:
    with engine() as (running, gate):
        gate.opened.set()
        done = running.submit(["a", "bbb", "cc"]).result(10)
        assert [reading.logits[0].item() for reading in done.readings] == [1, 3, 2]
        assert running.stats()["tokens_computed"] == 6


@pytest.mark.parametrize("bad", ["fail", "nan"])
def test_a_failing_job_fails_alone(bad: str) -> None:
    with engine() as (running, gate):
        jobs = [running.submit([name]) for name in ("a", bad, "b")]
        gate.opened.set()
        assert jobs[0].result(10) and jobs[2].result(10)
        with pytest.raises(EngineFault):
            jobs[1].result(10)
        assert running.ready


def test_a_caller_who_leaves_is_dropped() -> None:
    with engine() as (running, gate):
        first = running.submit(["first", "second prompt of the first"])
        assert gate.entered.wait(10)
        waiting = running.submit(["left"])
        assert first.cancel() and waiting.cancel()
        last = running.submit(["last"])
        gate.opened.set()
        last.result(10)
        assert gate.seen == ["first", "last"]
        assert running.stats()["jobs_waiting"] == 0
        with pytest.raises(CancelledError):
            waiting.result()


def test_a_full_queue_refuses_and_recovers() -> None:
    with engine(max_jobs=2) as (running, gate):
        jobs: list[Future[object]] = [running.submit([name]) for name in "ab"]  # type: ignore[misc]
        with pytest.raises(Overloaded, match="the limit is 2") as refused:
            running.submit(["c"])
        assert refused.value.retry_after >= 1
        jobs[1].cancel()
        jobs.append(running.submit(["d"]))  # type: ignore[arg-type]
        gate.opened.set()
        assert jobs[0].result(10) and jobs[2].result(10)


def test_closing_answers_what_was_accepted() -> None:
    with engine() as (running, gate):
        jobs = [running.submit([name]) for name in "abc"]
        closing = threading.Thread(target=running.close)
        closing.start()
        gate.opened.set()
        closing.join(10)
        assert all(job.result(10) for job in jobs)
        with pytest.raises(Unavailable):
            running.submit(["late"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dying_thread_fails_everyone_at_once() -> None:
    with engine() as (running, gate):
        jobs = [running.submit([name]) for name in ("die", "a", "b")]
        gate.opened.set()
        for job in jobs:
            with pytest.raises(Unavailable, match="died"):
                job.result(10)
        assert not running.ready
