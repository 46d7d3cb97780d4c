"""Readers that take a prompt in one go, behind the engine's interface."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from quaver.engine.job import Outcome, Prompt, PromptIn, Reading, Step, not_finite
from quaver.models.backbone import Pause


class ReadsWhole(Protocol[PromptIn]):
    """A model that cannot stop in the middle of a prompt."""

    def read(self, prompt: PromptIn, /) -> Reading:
        """Logits of every question of one prompt. May raise anything; only this prompt's job fails."""

    def stats(self) -> dict[str, int]:
        """Sizes of what is kept."""

    def shrink(self) -> None:
        """Drops what is kept."""


@dataclass(slots=True, eq=False)
class WholeProgress(Generic[Prompt]):
    """A prompt that is read or not."""

    prompt: Prompt
    read: bool = False

    @property
    def remaining(self) -> int:
        return 0 if self.read else self.prompt.tokens

    def part(self, _: int) -> int:
        return self.remaining


class WholeReader(Generic[Prompt]):
    """``model`` as a ``Reader``. It keeps by itself what it can use again."""

    def __init__(self, model: ReadsWhole[Prompt]) -> None:
        self._model = model

    def state_of(self, _: Prompt) -> None:
        return None

    def missing(self, prompt: Prompt) -> int:
        return prompt.tokens

    def open(self, prompt: Prompt) -> WholeProgress[Prompt]:
        return WholeProgress(prompt)

    def step(self, parts: Sequence[tuple[WholeProgress[Prompt], int]], pause: Pause | None = None) -> Step:
        started = time.perf_counter()
        outcomes: list[Outcome] = []
        computed = 0
        for progress, _ in parts:
            if pause:
                pause()
            reading = self._model.read(progress.prompt)
            computed += reading.computed
            if all(bool(row.isfinite().all()) for row in reading.logits):
                outcomes.append(reading)
            else:
                outcomes.append(not_finite())
        for (progress, _), outcome in zip(parts, outcomes, strict=True):
            progress.read = isinstance(outcome, Reading)
        return Step(outcomes, computed, time.perf_counter() - started, 0.0)

    def shareable(self, _: WholeProgress[Prompt]) -> bool:
        return True

    def share(self, _: WholeProgress[Prompt], __: WholeProgress[Prompt]) -> None:
        """States are not shared under way."""

    def keep(self, _: WholeProgress[Prompt]) -> None:
        """The model keeps by itself."""

    def close(self, _: WholeProgress[Prompt]) -> None:
        """Nothing is held."""

    def shrink(self) -> None:
        self._model.shrink()

    def stats(self) -> dict[str, int]:
        return self._model.stats()
