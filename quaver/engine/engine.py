"""The engine: a bounded queue and one thread that owns the model.

Every accepted job ends in an answer or an error. A job whose caller left is dropped before its next
prompt; a job that fails does so alone; a thread that dies fails everyone who waits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic

import torch

from quaver.engine.job import Finished, Job, Prompt, Reader, Reading
from quaver.errors import EngineFault, Overloaded, QuaverError, Unavailable
from quaver.models.placement import prepare_thread


class Engine(Generic[Prompt]):
    """Runs ``reader`` over submitted prompts, first come first served.

    ``max_jobs`` bounds the jobs that wait or run; one more is refused with ``Overloaded``.
    """

    def __init__(self, reader: Reader[Prompt], max_jobs: int = 256) -> None:
        self._reader = reader
        self._max_jobs = max_jobs
        self._jobs: queue.SimpleQueue[Job[Prompt] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._waiting = 0
        self._seconds_per_job = 0.05
        self._stats = {"jobs_done": 0, "jobs_failed": 0, "jobs_dropped": 0, "tokens_computed": 0, "tokens_reused": 0}
        self._thread = threading.Thread(target=self._run, name="quaver-engine", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether jobs are accepted."""
        return self._open and self._thread.is_alive()

    def submit(self, prompts: Sequence[Prompt]) -> Future[Finished]:
        """Queue prompts that are answered together. Cancelling the future drops them.

        Raises ``Overloaded`` when the queue is full and ``Unavailable`` when the engine has stopped.
        """
        job = Job(tuple(prompts))
        with self._lock:
            if not self.ready:
                raise Unavailable("the engine has stopped; start the server again")
            if self._waiting >= self._max_jobs:
                raise Overloaded(
                    f"{self._waiting} requests wait already and the limit is {self._max_jobs}; try again later",
                    retry_after=max(1.0, self._waiting * self._seconds_per_job),
                )
            self._waiting += 1
            job.reply.add_done_callback(self._leave)
            self._jobs.put(job)
        return job.reply

    def stats(self) -> dict[str, int]:
        """Counters since the start, and the jobs that wait or run now."""
        return {**self._stats, "jobs_waiting": self._waiting}

    def close(self) -> None:
        """Refuse new jobs, answer those accepted, stop the thread."""
        with self._lock:
            if self._open:
                self._open = False
                self._jobs.put(None)
        self._thread.join()

    def _leave(self, _: Future[Finished]) -> None:
        with self._lock:
            self._waiting -= 1

    def _run(self) -> None:
        job: Job[Prompt] | None = None
        try:
            prepare_thread()
            while (job := self._jobs.get()) is not None:
                self._answer(job)
        finally:
            self._fail_waiting(job)

    def _answer(self, job: Job[Prompt]) -> None:
        started = time.perf_counter()
        readings = []
        try:
            for prompt in job.prompts:
                if job.reply.cancelled():
                    self._stats["jobs_dropped"] += 1
                    return
                readings.append(self._read(prompt))
        except Exception as error:
            self._stats["jobs_failed"] += 1
            if job.reply.set_running_or_notify_cancel():
                job.reply.set_exception(error if isinstance(error, QuaverError) else _fault(error))
            return
        took = time.perf_counter() - started
        self._seconds_per_job = 0.9 * self._seconds_per_job + 0.1 * took
        self._stats["jobs_done"] += 1
        if job.reply.set_running_or_notify_cancel():
            job.reply.set_result(Finished(tuple(readings), started - job.submitted, took))

    def _read(self, prompt: Prompt) -> Reading:
        reading = self._reader.read(prompt)
        self._stats["tokens_computed"] += reading.computed
        self._stats["tokens_reused"] += reading.reused
        if not all(bool(torch.isfinite(logits).all()) for logits in reading.logits):
            raise EngineFault("the model gave a logit that is not finite; the request was not answered")
        return reading

    def _fail_waiting(self, current: Job[Prompt] | None) -> None:
        """The thread ends: nobody may be left waiting, whatever ended it."""
        with self._lock:
            self._open = False
        left = [current] if current is not None else []
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                left.append(job)
        for job in left:
            if not job.reply.done() and job.reply.set_running_or_notify_cancel():
                job.reply.set_exception(Unavailable("the engine has died; start the server again"))


def _fault(error: Exception) -> EngineFault:
    fault = EngineFault(f"the forward failed with {type(error).__name__}: {error}; this is a bug or a lack of memory")
    fault.__cause__ = error
    return fault
