"""What a decider is made of: a family of models, which makes prompts of a request, and an engine that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol

from quaver.engine.job import Finished, Prompt, PromptIn, Reading
from quaver.heads.scoring import probabilities
from quaver.prompts.encoded import Span
from quaver.questions import Json, LabelFacts, OverflowRule, ReadingMode, Request


@dataclass(frozen=True, slots=True)
class Scored:
    """``probabilities`` of one question's options by id; ``labels`` and ``abstain``, whether to leave the answer
    aside for them, where labels were read."""

    probabilities: Mapping[str, float]
    labels: LabelFacts | None = None
    abstain: bool | None = None


@dataclass(frozen=True)
class Prepared(Generic[Prompt]):
    """A request as prompts. ``option_ids`` has one entry per question of the request, in its order:
    the ids of the options in the order of the logits that will come back. Of ``input_tokens``,
    ``known_tokens`` are of prompts whose results were known, which are not among ``prompts``."""

    prompts: tuple[Prompt, ...]
    option_ids: tuple[tuple[str, ...], ...]
    input_tokens: int
    truncated_tokens: int = 0
    known_tokens: int = 0

    def scores(self, readings: Sequence[Reading]) -> list[Scored]:
        """What the readings of the prompts, in their order, say of each question."""
        logits = (row for reading in readings for row in reading.logits)
        return [
            Scored(dict(zip(ids, probabilities(row), strict=True)))
            for ids, row in zip(self.option_ids, logits, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class EncodedView:
    """The token ids that a request becomes, and where its questions and options lie in them."""

    ids: list[int]
    question_spans: list[Span]
    option_spans: list[list[Span]]
    option_ids: list[list[str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can read. ``max_length`` is in tokens, None when there is no limit. ``image_budgets`` are the
    tokens that an image may be allowed at most, none where that is not to be chosen. ``blind`` is why images of
    a model that could see are not read."""

    max_length: int | None
    images: bool = False
    audio: bool = False
    videos: bool = False
    image_budgets: tuple[int, ...] = ()
    blind: str = ""


class Family(Protocol[Prompt]):
    """How one model is asked. May be called from any thread. ``config`` has what can be set about how the model
    reads, as it is in force unless a request says otherwise."""

    name: str
    config: Mapping[str, Json]
    readings: tuple[ReadingMode, ...]
    limits: Limits
    reads_labels: bool

    def prepare(self, request: Request, reading: ReadingMode, on_overflow: OverflowRule) -> Prepared[Prompt]:
        """Raises ``BadRequest`` and its kinds when the request cannot be asked of this model."""
        ...

    def view(self, request: Request, reading: ReadingMode, on_overflow: OverflowRule) -> EncodedView: ...


class PromptEngine(Protocol[PromptIn]):
    """What computes prompts; ``quaver.engine.Engine`` is one, and says what each of these means."""

    @property
    def ready(self) -> bool: ...

    def submit(self, prompts: Sequence[PromptIn], priority: int, deadline: float | None) -> Future[Finished]: ...

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None: ...
