"""Which prompts the next step computes, and how much of each.

Everything about a prompt is known when it arrives, so the one with the least left to compute goes first,
which gives the shortest waits on average. Long prompts are computed in parts that fit the step, so that
nobody waits for a giant; and a prompt that was passed over for too long goes first itself, so that a giant
does not starve either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from quaver.engine.job import Progress


class Waiting(Protocol):
    """What the order depends on."""

    @property
    def progress(self) -> Progress | None: ...

    @property
    def remaining(self) -> int: ...

    @property
    def priority(self) -> int: ...

    @property
    def served(self) -> float: ...

    @property
    def alone(self) -> bool: ...


W = TypeVar("W", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Policy:
    """``step_tokens`` are computed in one step, by at most ``step_rows`` prompts.

    The prompts of a step are answered when all of it is computed. So where time goes by the token, as on a
    CPU, a step of more than ``together`` tokens only grows by prompts that it ends and that are no longer
    than what it has; None is for devices that compute a full step nearly as fast as a small one.
    A prompt that has not been computed on for ``patience`` seconds goes before shorter ones of its priority.
    """

    step_tokens: int
    step_rows: int = 256
    together: int | None = None
    patience: float = 5.0


def order(waiting: Collection[W], policy: Policy, now: float) -> list[W]:
    """All of them, the next one first."""

    def rank(work: W) -> tuple[int, bool, float]:
        patient = now - work.served < policy.patience
        return work.priority, patient, work.remaining if patient else work.served

    return sorted(waiting, key=rank)


def plan(ready: Iterable[W], policy: Policy) -> list[tuple[W, int]]:
    """The parts of one step: opened prompts in this order, with the tokens to compute of each.

    The first is always among them, whole if it cannot be divided, and by itself if it has to be alone.
    ``ready`` is asked for no more prompts than fit.
    """
    used, left = 0, policy.step_tokens
    parts: list[tuple[W, int]] = []
    for work in ready:
        assert work.progress is not None
        tokens = work.progress.part(left)
        joins = policy.together is None or (tokens == work.remaining and tokens <= max(policy.together, used))
        if parts and (work.alone or tokens > left or not joins):
            continue
        parts.append((work, tokens))
        used, left = used + tokens, left - tokens
        if left <= 0 or work.alone or len(parts) == policy.step_rows:
            break
    return parts
