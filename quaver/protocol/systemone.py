"""The System One dialect of TypeSafe: a map of questions in, a map of answers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, Field, SkipValidation, WithJsonSchema

from quaver.errors import BadMedia, BadQuestion
from quaver.protocol.media_slots import Asset, Kind, Media, claim_assets, lift_parts, local_media
from quaver.protocol.replies import Abstains, ChoiceReply, NoulReply, OwnReplyFields, ScoreReply, SystemOneReply
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.types import (
    Attachments,
    Dialect,
    OwnFields,
    Strict,
    build_question,
    check_media_text,
    one_of,
    validated,
)
from quaver.questions import (
    MAX_LEVELS,
    MAX_OPTIONS,
    Answer,
    Answers,
    Choice,
    ChoiceAnswer,
    Json,
    MediaSource,
    Noul,
    NoulAnswer,
    Question,
    Request,
    Score,
    ScoreAnswer,
)

LISTS: tuple[Kind, ...] = ("images", "audio", "videos")

Sides = Annotated[
    Json,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"type": "string", "description": "Describes the true side."},
                {"type": "object", "properties": {"true": {}, "false": {}}},
            ]
        }
    ),
]
Options = Annotated[
    Json,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "minProperties": 1, "maxProperties": MAX_OPTIONS},
                {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": MAX_OPTIONS,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]
Levels = Annotated[Json, WithJsonSchema({"type": "array", "items": {}, "minItems": 1, "maxItems": MAX_LEVELS})]


class _Asking(Strict):
    """What all three kinds of question have."""

    instructions: Json = None
    criteria: Json = None


class NoulBody(_Asking):
    """A yes/no question."""

    type: Literal["noul"]
    criteria: Sides = None


class ChoiceBody(_Asking):
    """One of several named options."""

    type: Literal["choice"]
    criteria: Options


class ScoreBody(_Asking):
    """A level on an ordered scale, lowest first."""

    type: Literal["score"]
    criteria: Levels


QuestionBody = Annotated[NoulBody | ChoiceBody | ScoreBody, Field(discriminator="type")]
QUESTIONS: Mapping[str, type[_Asking]] = {"noul": NoulBody, "choice": ChoiceBody, "score": ScoreBody}
MediaText = SkipValidation[str]


class SystemOneBody(OwnFields, Strict):
    """The body of ``POST /v1/systemone``. Unknown top-level fields are ignored, as the dialect asks."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = Field(None, description="A name from /v1/models; the served model when absent.")
    state: Json = Field(description="What all questions are about: text or any JSON value.")
    questions: dict[str, SkipValidation[QuestionBody]] = Field(min_length=1)
    images: list[MediaText] | None = Field(None, description="Data URLs or base64.")
    audio: list[MediaText] | None = Field(None, description="Data URLs or base64.")
    videos: list[MediaText] | None = Field(None, description="Data URLs or base64.")
    files: list[MediaText] | None = Field(None, description="Data URLs of images, audio or videos.")
    assets: dict[str, Asset] | None = Field(None, min_length=1, max_length=128)


@dataclass(frozen=True, slots=True)
class SystemOneCall:
    """A parsed body: what is asked, of which model, and how to word the reply."""

    request: Request
    model: str | None
    timing: bool
    dialect: ClassVar[Dialect] = "systemone"

    def reply(self, answers: Answers) -> SystemOneReply:
        """The reply body, full precision."""
        return {
            "model": answers.model,
            "answers": {name: _reply_answer(item, abstains(answers, name)) for name, item in answers.items()},
            "usage": {
                "input_tokens": answers.input_tokens,
                "output_tokens": 0,
                "input_tokens_details": {"cached_tokens": answers.cached_tokens},
            },
            **own_reply_fields(answers, self.timing),
        }


def parse(body: Mapping[str, Any], attachments: Attachments | None = None, *, local: bool = False) -> SystemOneCall:
    """A body of checked JSON as what it asks; BadRequest when it breaks a rule.

    ``local`` is for callers in this process: media may then also be bytes, a ``Path``, or the path of a
    file as text. Never set it for a body that came from elsewhere.
    """
    checked = validated(SystemOneBody, dict(body))
    # Each question is checked by the model of its own type, so that its errors speak of that type alone.
    bodies = {name: one_of(QUESTIONS, item, ("questions", name)) for name, item in body["questions"].items()}
    media = Media()
    for kind in LISTS:
        for index, item in enumerate(getattr(checked, kind) or ()):
            media.add(kind, _listed(item, (kind, index), local))
    for index, item in enumerate(checked.files or ()):
        media.add(*_file(item, ("files", index)))
    state = lift_parts(checked.state, media)
    texts = [state, *(text for item in bodies.values() for text in (item.instructions, item.criteria))]
    fill = claim_assets(checked.assets or {}, attachments or {}, media, texts)
    request = Request(
        fill(state),
        {name: _question(("questions", name), item, fill) for name, item in bodies.items()},
        images=tuple(media.images),
        audio=tuple(media.audio),
        videos=tuple(media.videos),
        **checked.settings,
    )
    return SystemOneCall(request, checked.model, bool(checked.x_timing))


def own_reply_fields(answers: Answers, timing: bool) -> OwnReplyFields:
    """Our own part of a reply: what was cut is always said, times only when asked for."""
    fields: OwnReplyFields = {"x_reading": answers.reading}
    if answers.calibration is not None:
        fields["x_calibration"] = answers.calibration
    if answers.truncated_tokens:
        fields["x_truncated"] = {"state_tokens": answers.truncated_tokens}
    if timing:
        times = answers.timing
        fields["x_timing"] = {
            "prepare": times.prepare,
            "queue": times.queued,
            "prefill": times.prefill,
            "head": times.head,
            "tokens_computed": answers.input_tokens - answers.cached_tokens,
            "tokens_reused": answers.cached_tokens,
        }
    return fields


def _question(where: Where, body: _Asking, fill: Callable[[Json], Json]) -> Question:
    instructions = fill(body.instructions)
    match body:
        case ChoiceBody(criteria=criteria):
            # Placeholders are filled in descriptions, never in names.
            options = fill(criteria) if isinstance(criteria, Mapping) else criteria
            return build_question(where, Choice, instructions, options)
        case ScoreBody(criteria=criteria):
            return build_question(where, Score, instructions, fill(criteria))
    return build_question(where, Noul, instructions, _sides(fill(body.criteria), where))


def _sides(criteria: Json, where: Where) -> Json:
    """A noul's sides. Text describes the true side; prompts skip keys beside true and false, as the releases do."""
    if isinstance(criteria, str):
        return {"true": criteria}
    if isinstance(criteria, Mapping) and criteria and not criteria.keys() & {"true", "false"}:
        raise BadQuestion(
            f"{place(where)}: noul criteria describe true, false or both, got {excerpt(list(criteria))}",
            (*where, "criteria"),
        )
    return criteria


def _listed(item: object, where: Where, local: bool) -> MediaSource:
    source = local_media(item) if local else item
    if isinstance(source, str):
        return check_media_text(source, where)
    if local:
        return source
    raise BadMedia(f"{place(where)} must be a data URL or base64 as text, got {excerpt(item)}", where)


def _file(item: object, where: Where) -> tuple[Kind, str]:
    kinds: dict[str, Kind] = {"data:image/": "images", "data:audio/": "audio", "data:video/": "videos"}
    kind = next((k for start, k in kinds.items() if isinstance(item, str) and item.lower().startswith(start)), None)
    if kind is None:
        raise BadMedia(f"{place(where)} must be a data URL of an image, audio or a video, got {excerpt(item)}", where)
    return kind, cast(str, item)


def abstains(answers: Answers, name: str) -> Abstains:
    """The field of one answer that says whether to leave it aside, where that was asked for."""
    return {} if answers.abstained is None else {"x_abstain": answers.abstained[name]}


def _reply_answer(item: Answer, own: Abstains) -> NoulReply | ChoiceReply | ScoreReply:
    match item:
        case NoulAnswer():
            return {"type": "noul", "noul": item.probability, **own}
        case ChoiceAnswer():
            return {
                "type": "choice",
                "choice": item.choice,
                "probabilities": dict(item.probabilities),
                "confidence": item.confidence,
                **own,
            }
        case ScoreAnswer():
            return {
                "type": "score",
                "score": item.score,
                # Clients refuse a null in the legend; its number names such a level.
                "legend": {str(i): str(i) if level is None else level for i, level in enumerate(item.levels)},
                "probabilities": {str(i): p for i, p in enumerate(item.probabilities)},
                "confidence": item.confidence,
                **own,
            }
