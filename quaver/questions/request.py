"""A request and its answers as the rooms hand them on: no wire format, no tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from quaver.errors import BadQuestion
from quaver.questions.answers import Answer, ConfidenceRule
from quaver.questions.calibration import Of
from quaver.questions.kinds import Json, Question
from quaver.questions.labels import LabelFacts, LabelRule

ReadingMode = Literal["joint", "independent"]
OverflowRule = Literal["truncate", "refuse"]

#: A data URL or raw base64 as text, encoded bytes, a file, or an object the media room knows (a Pillow image).
MediaSource = str | bytes | Path | object


#: Leaves everything as the model was loaded with it.
NO_RULE = LabelRule()


@dataclass(frozen=True, slots=True)
class Abstention:
    """A wish to be told which answers to leave aside so that at most ``target`` of the questions ``of`` are wrong."""

    target: float
    of: Of = "asked"


@dataclass(frozen=True, slots=True)
class Request:
    """One state, its media, and the questions about it, in request order.

    ``reading``, ``on_overflow``, ``confidence`` and ``labels`` override what the decider was loaded with; None
    leaves it.
    So does ``image_budget``, the most tokens that an image may take, for models that have budgets.
    What was read for one ``cache_salt`` is never reused for another. Requests of lower ``priority`` are read
    first. ``timeout`` is in seconds: without an answer by then the request is dropped as ``Expired``.
    ``media_places`` leads from ``("images", 0)`` and the like to where in a body the medium stood.
    """

    state: Json
    questions: Mapping[str, Question]
    images: tuple[MediaSource, ...] = ()
    audio: tuple[MediaSource, ...] = ()
    videos: tuple[MediaSource, ...] = ()
    reading: ReadingMode | None = None
    on_overflow: OverflowRule | None = None
    confidence: ConfidenceRule | None = None
    abstain: Abstention | None = None
    labels: LabelRule = NO_RULE
    image_budget: int | None = None
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None
    media_places: Mapping[tuple[str | int, ...], tuple[str | int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.questions:
            raise BadQuestion("at least one question is required", ("questions",))


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a request went, in seconds: before the queue, in it, in the model, in its head."""

    prepare: float = 0.0
    queued: float = 0.0
    prefill: float = 0.0
    head: float = 0.0


@dataclass(frozen=True, slots=True)
class Answers(Mapping[str, Answer]):
    """Answers by question id, in request order, and what is known about how they were made.

    ``truncated_tokens`` counts the tokens cut from the end of the state, 0 when all of it was read.
    ``calibration`` is the id of the calibration that was applied, None when there is none. ``abstained``
    tells of every question whether to leave its answer aside, None when that was not asked for. ``labels``
    says how each answer was read off labels, None when none was. ``config`` has what can be set about how
    the model reads, as it was in force, by name; empty where there is nothing to set.
    """

    answers: Mapping[str, Answer]
    model: str
    reading: ReadingMode
    input_tokens: int
    cached_tokens: int = 0
    truncated_tokens: int = 0
    timing: Timing = field(default_factory=Timing)
    calibration: str | None = None
    abstained: Mapping[str, bool] | None = None
    labels: Mapping[str, LabelFacts] | None = None
    config: Mapping[str, Json] = field(default_factory=dict)

    def __getitem__(self, question_id: str) -> Answer:
        return self.answers[question_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)
