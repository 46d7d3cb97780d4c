"""The nouns of the engine: a reader, a reading, a job."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from torch import Tensor

Prompt = TypeVar("Prompt")
PromptIn = TypeVar("PromptIn", contravariant=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one prompt gave: float32 CPU logits per question, options in the prompt's order.

    ``computed`` and ``reused`` count input tokens: those that went through the backbone and those
    whose results were already there.
    """

    logits: tuple[Tensor, ...]
    computed: int
    reused: int = 0


class Reader(Protocol[PromptIn]):
    """A model behind the engine. Called only from the engine's thread."""

    def read(self, prompt: PromptIn) -> Reading:
        """Logits of every question of one prompt. May raise anything; only this prompt's job fails."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """The readings of one job, in the order of its prompts, with the seconds it waited and was read."""

    readings: tuple[Reading, ...]
    queued: float
    read: float


@dataclass(slots=True, eq=False)
class Job(Generic[Prompt]):
    """Prompts that are answered together: one for a joint reading, one per question otherwise."""

    prompts: tuple[Prompt, ...]
    reply: Future[Finished] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)
