"""What both dialects share: strict models, our own opt-in fields, errors of validation as ``BadRequest``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quaver.errors import BadQuestion, BadRequest
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.questions import (
    MAX_OPTIONS,
    Abstention,
    ConfidenceRule,
    Json,
    LabelRule,
    OverflowRule,
    Question,
    ReadingMode,
)
from quaver.questions.calibration import Of

Dialect = Literal["systemone", "decisions"]

#: Encoded files that came beside a multipart body, by part name.
Attachments = Mapping[str, bytes]

Model = TypeVar("Model", bound=BaseModel)

#: Either way; enough for any ordering that people think of, and a bound for what a caller can claim.
MAX_PRIORITY = 100

#: A day; no clock of a server waits longer on purpose.
MAX_TIMEOUT_MS = 86_400_000


class Strict(BaseModel):
    """A wire object that refuses fields it does not know."""

    # Strict, so that true is no number and "1" neither: what a client did not mean is told to it.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class AbstainBody(Strict):
    """How many wrong answers are bearable: a share between 0 and 1 of the questions asked, or of those answered."""

    target: float = Field(gt=0, lt=1)
    of: Of = "asked"


class ProcessorSettings(Strict):
    """What a request may say about how its images are prepared."""

    max_soft_tokens: int = Field(description="Tokens that an image may take at most: 70, 140, 280, 560 or 1120.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reply says only when it is asked for."""

    timing: bool = False
    config: bool = False


class OwnFields(BaseModel):
    """Quaver's own request fields, ``cache_salt`` and ``mm_processor_kwargs`` as vLLM has them. Other servers may
    refuse them."""

    cache_salt: str | None = Field(
        None, max_length=128, description="What was read for one salt is never reused for another."
    )
    mm_processor_kwargs: ProcessorSettings | None = Field(
        None, description="How images are prepared, for models with image budgets."
    )
    x_reading: ReadingMode | None = Field(None, description="How to read the questions: together or one by one.")
    x_on_overflow: OverflowRule | None = Field(None, description="What to do with a state that is too long.")
    x_confidence: ConfidenceRule | None = Field(None, description="Which definition of confidence to answer with.")
    x_timing: bool | None = Field(None, description="True asks for x_timing, in seconds, in the reply.")
    x_config: bool | None = Field(
        None, description="True asks for x_config, the settings in force of how the model reads, in the reply."
    )
    x_abstain: AbstainBody | None = Field(
        None, description="Asks each answer to say, as x_abstain, whether to leave it aside; needs a calibration."
    )
    x_min_label_mass: float | None = Field(
        None, ge=0, le=1, description="Marks answers, as x_abstain, whose labels hold less of the next token."
    )
    x_prior_correction: bool | None = Field(
        None, description="Corrects for what the model answers about a state that says nothing."
    )
    x_option_orders: int | None = Field(
        None, ge=1, le=MAX_OPTIONS, description="Reads the options in so many orders and averages."
    )
    x_priority: int | None = Field(None, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="A lower number is read first.")
    x_timeout_ms: float | None = Field(
        None, gt=0, le=MAX_TIMEOUT_MS, description="Without an answer after that long the request is dropped: 504."
    )

    @property
    def settings(self) -> dict[str, Any]:
        """How to read, as the arguments of a ``Request``."""
        return {
            "reading": self.x_reading,
            "on_overflow": self.x_on_overflow,
            "confidence": self.x_confidence,
            "abstain": Abstention(self.x_abstain.target, self.x_abstain.of) if self.x_abstain else None,
            "labels": LabelRule(self.x_min_label_mass, self.x_prior_correction, self.x_option_orders),
            "image_budget": self.mm_processor_kwargs.max_soft_tokens if self.mm_processor_kwargs else None,
            "cache_salt": self.cache_salt or "",
            "priority": self.x_priority or 0,
            "timeout": self.timeout,
        }

    @property
    def wanted(self) -> Wanted:
        return Wanted(bool(self.x_timing), bool(self.x_config))

    @property
    def timeout(self) -> float | None:
        """Seconds that the answer may take."""
        return None if self.x_timeout_ms is None else self.x_timeout_ms / 1000


def require_object(body: object) -> None:
    """BadRequest unless ``body`` is one."""
    if not isinstance(body, Mapping):
        raise BadRequest(f"the body must be a JSON object, got {excerpt(body)}")


def validated(model: type[Model], value: object, where: Where = ()) -> Model:
    """``value`` as ``model``; the first thing wrong with it as BadRequest (BadQuestion inside ``questions``)."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        # One at a time: a message must be short enough to be shown, and the rest often follows from the first.
        first = error.errors(include_url=False, include_context=False)[0]
        full: Where = (*where, *first["loc"])
        raise _kind(full)(f"{place(full)} {_complaint(first, model)}", full) from None


def one_of(models: Mapping[str, type[Model]], value: object, where: Where, default: str | None = None) -> Model:
    """``value`` as the model that its ``type`` names."""
    if not isinstance(value, Mapping):
        raise _kind(where)(f"{place(where)} must be an object, got {excerpt(value)}", where)
    kind = value.get("type", default)
    if not isinstance(kind, str) or kind not in models:
        got = f"got {excerpt(kind)}" if "type" in value else "but there is none"
        names = ", ".join(models)
        raise _kind(where)(f"{place(where)}: type must be one of {names}, {got}", (*where, "type"))
    return validated(models[kind], value, where)


def build_question(where: Where, kind: type[Question], instructions: Json, criteria: Any) -> Question:
    """``kind(instructions, criteria)``, with the question's place put in front of what it complains about."""
    try:
        return kind(instructions, criteria)
    except BadQuestion as error:
        raise BadQuestion(f"{place(where)}: {error}", (*where, "criteria")) from None


def _kind(where: Where) -> type[BadRequest]:
    return BadQuestion if where[:1] == ("questions",) else BadRequest


def _complaint(error: Any, model: type[BaseModel]) -> str:
    """What is wrong and what would be right, to follow the place."""
    if error["type"] == "missing":
        return "is required"
    if error["type"] == "extra_forbidden":
        return f"is not a known field; known are {', '.join(model.model_fields)}"
    if error["type"] == "too_short":
        return "must not be empty"
    # pydantic speaks of input and of Python's types.
    message = error["msg"].removeprefix("Input ").replace("dictionary", "object")
    return f"{message[:1].lower()}{message[1:]}, got {excerpt(error['input'])}"
