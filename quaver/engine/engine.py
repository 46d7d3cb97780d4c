"""The engine: a bounded queue and one thread that owns the model.

Every accepted job ends in an answer or an error. A job whose callers left or whose time is over is
dropped before the next step; a job that fails does so alone; a thread that dies fails everyone who waits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Generic

import torch

from quaver.engine.job import Finished, Job, ProgressOf, Prompt, Reader, Step, Waiter, Work
from quaver.engine.scheduler import Policy, order, plan
from quaver.errors import EngineFault, Expired, Overloaded, QuaverError, Unavailable
from quaver.models.backbone import Pause
from quaver.models.placement import prepare_thread

#: A work with the tokens of it that a step computes.
Part = tuple[Work[Prompt, ProgressOf], int]

#: What may come in between has at most this fraction of the step's tokens.
SHORT = 4
#: How often a step under way is asked whether anybody still waits for it.
SECONDS_BETWEEN_LOOKS = 0.02
#: A step is never planned smaller than this, however little memory there is.
LEAST_STEP_TOKENS = 16
#: After so many steps without running out of memory, a shrunken step doubles again.
RECOVERY_STEPS = 256


class Engine(Generic[Prompt, ProgressOf]):
    """Runs ``reader`` over submitted prompts as ``policy`` orders them.

    ``max_jobs`` and ``max_tokens`` bound what waits or runs; a job beyond either is refused with
    ``Overloaded``, but a single job is always accepted by an idle engine.
    """

    def __init__(
        self, reader: Reader[Prompt, ProgressOf], policy: Policy, max_jobs: int = 256, max_tokens: int = 1 << 20
    ) -> None:
        self._reader = reader
        self._policy = policy
        self._max_jobs, self._max_tokens = max_jobs, max_tokens
        self._inbox: queue.SimpleQueue[Job[Prompt, ProgressOf] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open, self._closing = True, False
        self._waiting, self._waiting_tokens = 0, 0
        self._seconds_per_token = 1e-4
        self._jobs: dict[tuple[Prompt, ...], Job[Prompt, ProgressOf]] = {}
        self._leaders: dict[Hashable, Work[Prompt, ProgressOf]] = {}
        self._step_tokens, self._steps_since_shrink = policy.step_tokens, 0
        # Of the step under way: when it began, its seconds that went to others, when it was last looked after.
        self._started, self._paused, self._looked = 0.0, 0.0, 0.0
        self._counts = dict.fromkeys(
            ("jobs_done", "jobs_failed", "jobs_dropped", "tokens_computed", "tokens_reused", "steps", "rows"), 0
        )
        self._thread = threading.Thread(target=self._run, name="quaver-engine", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether jobs are accepted."""
        return self._open and self._thread.is_alive()

    def submit(self, prompts: Sequence[Prompt], priority: int = 0, deadline: float | None = None) -> Future[Finished]:
        """Queue prompts that are answered together. Cancelling the future drops them.

        Raises ``Overloaded`` when the queue is full and ``Unavailable`` when the engine has stopped. The
        future fails with ``Expired`` when ``deadline``, a time of ``time.monotonic``, passes first.
        """
        reply: Future[Finished] = Future()
        tokens = sum(prompt.tokens for prompt in prompts)
        with self._lock:
            if not self.ready:
                raise Unavailable("the engine has stopped; start the server again")
            self._admit(tokens)
            self._waiting += 1
            self._waiting_tokens += tokens
            reply.add_done_callback(lambda _: self._leave(tokens))
            self._inbox.put(Job(tuple(prompts), priority, [Waiter(reply, deadline)]))
        return reply

    def stats(self) -> dict[str, int]:
        """Counters since the start, what waits or runs now, and the sizes that the reader keeps."""
        running = len(self._jobs)
        waiting = {"jobs_waiting": self._waiting, "jobs_running": running, "tokens_waiting": self._waiting_tokens}
        return {**self._counts, **waiting, **self._reader.stats()}

    def close(self) -> None:
        """Refuse new jobs, answer those accepted, stop the thread."""
        with self._lock:
            if self._open:
                self._open = False
                self._inbox.put(None)
        self._thread.join()

    def _admit(self, tokens: int) -> None:
        full = None
        if self._waiting >= self._max_jobs:
            full = f"{self._waiting} requests wait already and the limit is {self._max_jobs}"
        elif self._waiting and self._waiting_tokens + tokens > self._max_tokens:
            queued = self._waiting_tokens
            full = f"{queued} tokens wait already, this request has {tokens} and the limit is {self._max_tokens}"
        if full:
            retry_after = max(1.0, self._waiting_tokens * self._seconds_per_token)
            raise Overloaded(f"{full}; try again later", retry_after=retry_after)

    def _leave(self, tokens: int) -> None:
        with self._lock:
            self._waiting -= 1
            self._waiting_tokens -= tokens

    def _run(self) -> None:
        try:
            prepare_thread()
            while self._receive():
                self._drop()
                if self._jobs:
                    self._advance()
        finally:
            self._fail_waiting()

    def _receive(self) -> bool:
        """Takes in what has arrived, waiting for it when there is nothing to do; False when all is done."""
        while not self._inbox.empty() or not (self._jobs or self._closing):
            if (job := self._inbox.get()) is None:
                self._closing = True
            else:
                self._begin(job)
        return bool(self._jobs) or not self._closing

    def _begin(self, job: Job[Prompt, ProgressOf]) -> None:
        if (same := self._jobs.get(job.prompts)) is not None:
            # No sampling, so equal prompts have equal answers.
            same.waiters += job.waiters
            same.priority = min(same.priority, job.priority)
            return
        self._jobs[job.prompts] = job
        for prompt in job.prompts:
            state, missing = self._reader.state_of(prompt), self._reader.missing(prompt)
            job.works.append(Work(job, prompt, state, missing, served=job.submitted))

    def _expire(self) -> None:
        """Tells those whose time is over."""
        now = time.monotonic()
        for job in self._jobs.values():
            for waiter in job.waiters:
                if waiter.deadline is not None and waiter.deadline <= now:
                    waiter.answer(Expired("the answer was not there within the time that the request allowed"))

    def _drop(self) -> None:
        """Lets go of jobs that nobody waits for any more."""
        self._expire()
        for job in list(self._jobs.values()):
            if job.abandoned:
                self._counts["jobs_dropped"] += 1
                self._hand_over(job)
                self._end(job)

    def _advance(self) -> None:
        works = [work for job in self._jobs.values() for work in job.works if work.reading is None]
        self._started, self._paused, self._looked = time.monotonic(), 0.0, 0.0
        self._compute(self._plan(works, self._step_tokens), self._let_in)

    def _let_in(self) -> None:
        """In the middle of a step: what has just arrived and is short goes first.

        So steps can be as large as the device likes them, and still nobody waits for more than one layer
        of them. Half of the time is the step's own, however many arrive. A step that nobody waits for any
        more ends here.
        """
        began = time.monotonic()
        if began - self._looked > SECONDS_BETWEEN_LOOKS:
            self._looked = began
            self._expire()
            if all(job.abandoned for job in self._jobs.values() if job.running):
                raise _Abandoned
        if self._inbox.empty() or self._paused > (began - self._started) / 2:
            return
        self._receive()
        running = [work for job in self._jobs.values() for work in job.works if work.running]
        tokens = sum(min(work.remaining, self._step_tokens) for work in running) // SHORT
        urgent = min(work.priority for work in running)
        works = [
            work
            for job in self._jobs.values()
            if not (job.running or job.abandoned) and job.priority <= urgent
            for work in job.works
            if work.reading is None and work.remaining <= tokens
        ]
        if parts := self._plan(works, tokens):
            self._compute(parts, None)
            self._paused += time.monotonic() - began

    def _plan(self, works: Sequence[Work[Prompt, ProgressOf]], tokens: int) -> list[Part[Prompt, ProgressOf]]:
        ordered = order(works, self._policy, time.monotonic())
        return plan((work for work in ordered if self._start(work)), replace(self._policy, step_tokens=tokens))

    def _compute(self, parts: Sequence[Part[Prompt, ProgressOf]], pause: Pause | None) -> None:
        """One step, and the answers of the jobs that it finished."""
        for work, _ in parts:
            work.running = True
        try:
            step = self._reader.step([(_opened(work), tokens) for work, tokens in parts], pause)
        except Exception as error:
            for work, _ in parts:
                work.running = False
            if not isinstance(error, _Abandoned):
                self._recover(parts, error)
            return
        self._count(step, len(parts))
        jobs = dict.fromkeys(work.job for work, _ in parts)
        for job in jobs:
            job.prefill += step.prefill - (self._paused if pause else 0.0)
            job.head += step.head
        for (work, _), outcome in zip(parts, step.outcomes, strict=True):
            work.served, work.alone, work.running = time.monotonic(), False, False
            if isinstance(outcome, EngineFault):
                self._reject(work, outcome, in_company=len(parts) > 1)
            else:
                work.reading = outcome
        for job in jobs:
            if self._jobs.get(job.prompts) is job and all(work.reading for work in job.works):
                self._finish(job)

    def _start(self, work: Work[Prompt, ProgressOf]) -> bool:
        """Opens the work, unless its state is being read for another prompt: then it waits for that."""
        if work.progress is None:
            leader = self._leaders.get(work.state) if work.state is not None else None
            if leader is not None and not self._reader.shareable(_opened(leader)):
                return False
            self._open_work(work, leader)
            if leader is None and work.state is not None:
                self._leaders[work.state] = work
        return True

    def _open_work(self, work: Work[Prompt, ProgressOf], leader: Work[Prompt, ProgressOf] | None) -> None:
        work.progress = self._reader.open(work.prompt)
        if leader is not None:
            self._reader.share(_opened(leader), work.progress)
        if work.job.started is None:
            work.job.started = time.monotonic()

    def _finish(self, job: Job[Prompt, ProgressOf]) -> None:
        try:
            for work in job.works:
                self._reader.keep(_opened(work))
        except Exception:  # what could not be kept, for want of memory, has to be computed again
            self._reader.shrink()
        readings = tuple(work.reading for work in job.works if work.reading)
        self._counts["jobs_done"] += 1
        self._counts["tokens_reused"] += sum(reading.reused for reading in readings)
        self._end(job)
        queued = (job.started or job.submitted) - job.submitted
        job.answer(Finished(readings, queued, job.prefill, job.head))

    def _fail(self, job: Job[Prompt, ProgressOf], error: Exception) -> None:
        self._counts["jobs_failed"] += 1
        self._end(job)
        job.answer(error if isinstance(error, QuaverError) else _fault(error))

    def _end(self, job: Job[Prompt, ProgressOf]) -> None:
        """Forgets a job; the prompts that wait for its state look again at what is known."""
        del self._jobs[job.prompts]
        states = {work.state for work in job.works if self._leaders.get(work.state) is work}
        for state in states:
            del self._leaders[state]
        for work in job.works:
            if work.progress is not None:
                self._reader.close(work.progress)
                work.progress = None
        # A job and its works hold each other; left so, its pixels would wait for the garbage collector.
        job.works.clear()
        for other in self._jobs.values():
            for work in other.works:
                if work.progress is None and work.state in states:
                    work.missing = self._reader.missing(work.prompt)

    def _hand_over(self, job: Job[Prompt, ProgressOf]) -> None:
        """What a dropped job has read of a state goes to one that waits for it, which leads from now on."""
        for work in job.works:
            if work.state is None or self._leaders.get(work.state) is not work:
                continue
            heirs = (w for other in self._jobs.values() if other is not job for w in other.works)
            heir = next((w for w in heirs if w.state == work.state and w.progress is None), None)
            if heir is not None:
                self._open_work(heir, work)
                self._leaders[work.state] = heir

    def _recover(self, parts: Sequence[Part[Prompt, ProgressOf]], error: Exception) -> None:
        """A whole step failed: less of it, or one part at a time, will tell whose fault that was."""
        if out_of_memory(error):
            self._reader.shrink()
            if self._step_tokens > LEAST_STEP_TOKENS:
                self._step_tokens = max(LEAST_STEP_TOKENS, self._step_tokens // 2)
                self._steps_since_shrink = 0
                return
        for work, _ in parts:
            self._reject(work, error, in_company=len(parts) > 1)

    def _reject(self, work: Work[Prompt, ProgressOf], error: Exception, in_company: bool) -> None:
        """A part failed: once more alone if it was not, else that is the end of its job."""
        if in_company:
            work.alone = True
        elif work.job.prompts in self._jobs:
            self._fail(work.job, error)

    def _count(self, step: Step, rows: int) -> None:
        self._counts["tokens_computed"] += step.computed
        self._counts["steps"] += 1
        self._counts["rows"] += rows
        per_token = (step.prefill + step.head) / max(1, step.computed)
        self._seconds_per_token = 0.9 * self._seconds_per_token + 0.1 * per_token
        self._steps_since_shrink += 1
        if self._step_tokens < self._policy.step_tokens and self._steps_since_shrink >= RECOVERY_STEPS:
            self._step_tokens = min(self._policy.step_tokens, self._step_tokens * 2)
            self._steps_since_shrink = 0

    def _fail_waiting(self) -> None:
        """The thread ends: nobody may be left waiting, whatever ended it."""
        with self._lock:
            self._open = False
        left = list(self._jobs.values())
        while not self._inbox.empty():
            if (job := self._inbox.get()) is not None:
                left.append(job)
        for job in left:
            job.answer(Unavailable("the engine has died; start the server again"))


class _Abandoned(Exception):
    """Nobody waits for the step under way."""


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine ran out of memory; on a CPU torch says so with a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _opened(work: Work[Prompt, ProgressOf]) -> ProgressOf:
    assert work.progress is not None
    return work.progress


def _fault(error: Exception) -> EngineFault:
    fault = EngineFault(f"the forward failed with {type(error).__name__}: {error}; this is a bug or a lack of memory")
    fault.__cause__ = error
    return fault
