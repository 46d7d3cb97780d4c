"""The nouns of the engine: prompts under way, what they gave, and the reader that computes them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from quaver.errors import EngineFault
from quaver.heads.labels import LabelRead
from quaver.models.backbone import Pause


class AnyPrompt(Hashable, Protocol):
    """What a reader reads. Equal prompts have equal results, so they share one."""

    @property
    def tokens(self) -> int:
        """Input tokens, for admission and order."""


Prompt = TypeVar("Prompt", bound=AnyPrompt)
PromptIn = TypeVar("PromptIn", bound=AnyPrompt, contravariant=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one prompt gave: CPU logits per question, options in the prompt's order.

    ``computed`` and ``reused`` count input tokens: those that went through the model and those
    whose results were already there. ``labels`` says more about each vector of logits that is a label read.
    """

    logits: tuple[Tensor, ...]
    computed: int
    reused: int = 0
    labels: tuple[LabelRead, ...] = ()


class Progress(Protocol):
    """How far a prompt has been read. Only the reader that opened it looks inside."""

    @property
    def remaining(self) -> int:
        """Tokens still to be computed; 0 once it is read."""

    def part(self, budget: int, /) -> int:
        """How many tokens the next part has when ``budget`` may be spent; more when it cannot be divided."""


ProgressOf = TypeVar("ProgressOf", bound=Progress)

#: After a part: still under way, read to the end, or not fit to be answered.
Outcome = None | Reading | EngineFault


def not_finite() -> EngineFault:
    """What becomes of a prompt whose numbers are no numbers."""
    return EngineFault("the model gave a number that is not finite; the request was not answered")


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of every part of a step, the tokens that were computed, and the seconds that the model and
    the head took."""

    outcomes: Sequence[Outcome]
    computed: int
    prefill: float
    head: float


class Reader(Protocol[PromptIn, ProgressOf]):
    """A model behind the engine. Called only from the engine's thread."""

    def state_of(self, prompt: PromptIn, /) -> Hashable | None:
        """Equal for prompts of which one can read the state for all; None when that is never so."""

    def missing(self, prompt: PromptIn, /) -> int:
        """Tokens that would have to be computed if the prompt were opened now."""

    def open(self, prompt: PromptIn, /) -> ProgressOf:
        """Begins a prompt, with everything that is known of it already."""

    def step(self, parts: Sequence[tuple[ProgressOf, int]], pause: Pause | None = None, /) -> Step:
        """Reads so many more tokens of each. May raise anything; then nothing has happened to any of them, as
        nothing has to a part whose outcome is a fault. Calls ``pause`` where another step may come between."""

    def shareable(self, leader: ProgressOf, /) -> bool:
        """Whether the leader has read all of its state that others can use."""

    def share(self, leader: ProgressOf, follower: ProgressOf, /) -> None:
        """Gives ``follower``, of the same state, what ``leader`` has read of it, if that is more than it has."""

    def keep(self, progress: ProgressOf, /) -> None:
        """The request was answered: what was computed for it may be kept for others."""

    def close(self, progress: ProgressOf, /) -> None:
        """Lets go of everything the prompt held. Called exactly once for every ``open``."""

    def shrink(self) -> None:
        """Gives memory back after the machine ran out of it."""

    def stats(self) -> dict[str, int]:
        """Sizes of what is kept."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The readings of one job, in the order of its prompts.

    Seconds: it waited in the queue, and its parts were in the model and in the head, in company or alone.
    """

    readings: tuple[Reading, ...]
    queued: float
    prefill: float
    head: float


@dataclass(slots=True, eq=False)
class Work(Generic[Prompt, ProgressOf]):
    """One prompt of a job under way.

    ``missing`` counts the tokens to compute as long as it is not opened; ``served`` is when it was last
    computed on; ``alone`` says that it has to be tried by itself because a batch with it failed;
    ``running`` that a step with it is on its way.
    """

    job: Job[Prompt, ProgressOf]
    prompt: Prompt
    state: Hashable | None
    missing: int
    served: float
    progress: ProgressOf | None = None
    reading: Reading | None = None
    alone: bool = False
    running: bool = False

    @property
    def remaining(self) -> int:
        return self.missing if self.progress is None else self.progress.remaining

    @property
    def priority(self) -> int:
        return self.job.priority


@dataclass(frozen=True, slots=True)
class Waiter:
    """A caller who waits until ``deadline``, a time of ``time.monotonic``; None is for ever."""

    reply: Future[Finished]
    deadline: float | None = None

    def answer(self, result: Finished | BaseException) -> None:
        """Tells the caller unless it has left or has been told."""
        if self.reply.done() or not self.reply.set_running_or_notify_cancel():
            return
        if isinstance(result, Finished):
            self.reply.set_result(result)
        else:
            self.reply.set_exception(result)


@dataclass(slots=True, eq=False)
class Job(Generic[Prompt, ProgressOf]):
    """Prompts that are answered together: one for a joint reading, one per question otherwise.

    A lower ``priority`` goes first. Several callers wait for one job when they asked the same.
    """

    prompts: tuple[Prompt, ...]
    priority: int
    waiters: list[Waiter]
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None
    prefill: float = 0.0
    head: float = 0.0
    works: list[Work[Prompt, ProgressOf]] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Whether a step with one of its prompts is on its way."""
        return any(work.running for work in self.works)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(waiter.reply.done() for waiter in self.waiters)

    def answer(self, result: Finished | BaseException) -> None:
        """Tells everyone who still waits."""
        for waiter in self.waiters:
            waiter.answer(result)
