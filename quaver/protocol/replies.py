"""The shapes of replies in both dialects, for the builders' types and the served OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

# pydantic refuses typing's own before Python 3.12.
from typing_extensions import TypedDict

from quaver.questions import Json


class Abstains(TypedDict):
    """What every answer may carry on request, whether to leave it aside."""

    x_abstain: NotRequired[bool]


class NoulReply(Abstains):
    type: Literal["noul"]
    noul: float


class ChoiceReply(Abstains):
    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float


class ScoreReply(Abstains):
    type: Literal["score"]
    score: float
    # An object from "0" on, not a list, and never with a null in it, or clients raise.
    legend: dict[str, Json]
    probabilities: dict[str, float]
    confidence: float


class Cached(TypedDict):
    cached_tokens: int


class Usage(TypedDict):
    # Integers, and all of them there: clients refuse a float, a null and a missing count.
    input_tokens: int
    output_tokens: int
    input_tokens_details: Cached


class Truncated(TypedDict):
    state_tokens: int


class Timed(TypedDict):
    """Seconds, and the input tokens that were read now and that had been read before."""

    prepare: float
    queue: float
    prefill: float
    head: float
    tokens_computed: int
    tokens_reused: int


class SometimesReplyFields(TypedDict):
    """What Quaver adds to a reply where it applies, under names that no dialect uses.

    A model that reads labels tells by question what its labels hold of the next token's probability, whether no
    other token is likelier, options that share the largest probability, and how far probabilities differ between
    orders of the options."""

    x_calibration: NotRequired[str]
    x_truncated: NotRequired[Truncated]
    x_timing: NotRequired[Timed]
    x_config: NotRequired[dict[str, Json]]
    x_label_mass: NotRequired[dict[str, float]]
    x_argmax_is_label: NotRequired[dict[str, bool]]
    x_ties: NotRequired[dict[str, list[str]]]
    x_order_spread: NotRequired[dict[str, float]]


class OwnReplyFields(SometimesReplyFields):
    """And what it always adds."""

    x_reading: str


class SystemOneReply(OwnReplyFields):
    """What ``POST /v1/systemone`` answers; ``answers`` has the asked ids and no others."""

    model: str
    answers: dict[str, Annotated[NoulReply | ChoiceReply | ScoreReply, Field(discriminator="type")]]
    usage: Usage


class ErrorObject(TypedDict):
    message: str
    type: str
    param: str | None
    code: str


class ErrorPlace(TypedDict):
    type: str
    loc: list[str | int]
    msg: str


class ErrorReason(TypedDict):
    error_type: str
    message: str


class ErrorReply(TypedDict):
    """What every refusal answers; ``detail`` only in System One."""

    error: ErrorObject
    detail: NotRequired[list[ErrorPlace] | ErrorReason]


class BatchError(ErrorReply):
    """In the place of a state that could not be answered: the status and body of a single request's error."""

    status: int


class BatchReply(TypedDict):
    """What ``POST /v1/systemone/batch`` answers: a result per state, in order."""

    model: str
    results: list[SystemOneReply | BatchError]
    total_usage: Usage


class PredicateAnswer(Abstains):
    type: Literal["predicate"]
    name: str | None
    probability: float


class ValueProbability(TypedDict):
    # Pairs and not an object, because true and "true" are two values.
    value: str | bool
    probability: float


class DecisionChoiceAnswer(Abstains):
    type: Literal["choice"]
    name: str | None
    choice: str | bool
    probabilities: list[ValueProbability]
    confidence: float


class LevelProbability(TypedDict):
    value: int
    label: str
    probability: float


class DecisionScoreAnswer(Abstains):
    type: Literal["score"]
    name: str | None
    score: float
    probabilities: list[LevelProbability]
    confidence: float


class CacheUsage(TypedDict):
    cached_tokens: int
    cache_write_tokens: int


class OutputUsage(TypedDict):
    reasoning_tokens: int


class DecisionsUsage(TypedDict):
    input_tokens: int
    input_tokens_details: CacheUsage
    output_tokens: int
    output_tokens_details: OutputUsage
    total_tokens: int


class DecisionsReply(SometimesReplyFields):
    """What ``POST /v1/decisions`` answers, in the order of the questions. A request with an ``x_`` field of
    its own also gets ``x_reading``, and the other fields of ours where they apply."""

    model: str
    answers: list[Annotated[PredicateAnswer | DecisionChoiceAnswer | DecisionScoreAnswer, Field(discriminator="type")]]
    usage: DecisionsUsage
    x_reading: NotRequired[str]
