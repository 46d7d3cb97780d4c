"""The Decisions dialect of OpenAI: a list of questions in, a list of answers out, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SkipValidation

from quaver.errors import BadQuestion
from quaver.protocol.input_items import USER, InputItem, UserPart, content_of, state_of
from quaver.protocol.media_slots import Media, MediaLists
from quaver.protocol.replies import Abstains, DecisionChoiceAnswer, DecisionScoreAnswer, DecisionsReply, PredicateAnswer
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.systemone import abstains, own_reply_fields
from quaver.protocol.types import Dialect, OwnFields, Strict, Wanted, build_question, one_of, validated
from quaver.questions import (
    MAX_LEVELS,
    MAX_OPTIONS,
    Answer,
    Answers,
    Choice,
    ChoiceAnswer,
    Json,
    Noul,
    NoulAnswer,
    Question,
    Request,
    Score,
    ScoreAnswer,
)

#: OpenAI's limit since its Decisions left beta.
MAX_QUESTIONS = 400

#: Checked part by part in ``input_items``: of a union pydantic would complain about every alternative.
Instructions = SkipValidation[str | list[UserPart]]


class _Asking(Strict):
    """What all three kinds of question have."""

    name: str | None = None
    instructions: Instructions


class PredicateBody(_Asking):
    type: Literal["predicate"]


class ChoiceOption(Strict):
    value: SkipValidation[str | bool] = Field(description='true and "true" are two values.')
    description: str | None = None


class DecisionChoiceBody(_Asking):
    type: Literal["choice"]
    # OpenAI asks for two choices and two levels; one of either is answered, as in System One.
    choices: list[ChoiceOption] = Field(min_length=1, max_length=MAX_OPTIONS)


class Level(Strict):
    label: str
    description: str | None = None


class DecisionScoreBody(_Asking):
    type: Literal["score"]
    levels: list[Level] = Field(min_length=1, max_length=MAX_LEVELS)


DecisionQuestion = Annotated[PredicateBody | DecisionChoiceBody | DecisionScoreBody, Field(discriminator="type")]
QUESTIONS: Mapping[str, type[_Asking]] = {
    "predicate": PredicateBody,
    "choice": DecisionChoiceBody,
    "score": DecisionScoreBody,
}


class CacheOptions(Strict):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m"] = "30m"


class DecisionsBody(OwnFields, MediaLists, Strict):
    """The body of ``POST /v1/decisions``. The cache fields and ``safety_identifier`` are hints of the
    dialect that change no answer; media beside the input are ours."""

    model: str | None = Field(None, description="A name from /v1/models; the served model when absent.")
    input: SkipValidation[str | list[InputItem]]
    questions: list[SkipValidation[DecisionQuestion]] = Field(min_length=1, max_length=MAX_QUESTIONS)
    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: str | None = Field(None, max_length=128)


@dataclass(frozen=True, slots=True)
class Asked:
    """How one question was asked: its name if it had one, and its values or labels as sent."""

    id: str
    name: str | None
    values: tuple[str | bool, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionsCall:
    """A parsed body: what is asked, of which model, and how to word the reply."""

    request: Request
    model: str | None
    wanted: Wanted
    asked: tuple[Asked, ...]
    #: Whether the request used a field of ours, and so knows them in a reply.
    own_fields: bool
    dialect: ClassVar[Dialect] = "decisions"

    def reply(self, answers: Answers) -> DecisionsReply:
        """The reply body, full precision; our own fields only when the request used one."""
        # A server can be told to abstain without the request's asking, and strict clients know no such field.
        own = {asked.id: abstains(answers, asked.id) if self.own_fields else Abstains() for asked in self.asked}
        body: DecisionsReply = {
            "model": answers.model,
            # OpenAI's SDK leaves it to callers to match answers with questions by their place.
            "answers": [_reply_answer(asked, answers[asked.id], own[asked.id]) for asked in self.asked],
            "usage": {
                "input_tokens": answers.input_tokens,
                "input_tokens_details": {"cached_tokens": answers.cached_tokens, "cache_write_tokens": 0},
                # Integers, and all of them, also of what does not happen here: strict clients refuse anything else.
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answers.input_tokens,
            },
        }
        return {**body, **own_reply_fields(answers, self.wanted)} if self.own_fields else body


def parse(body: Mapping[str, Any], *, local: bool = False) -> DecisionsCall:
    """A body of checked JSON as what it asks; BadRequest when it breaks a rule. ``local`` as in System One."""
    checked = validated(DecisionsBody, dict(body))
    bodies = [one_of(QUESTIONS, item, ("questions", i)) for i, item in enumerate(body["questions"])]
    media = checked.media(local=local)
    state = state_of(checked.input, media)
    questions: dict[str, Question] = {}
    asked: list[Asked] = []
    for index, (name, item) in enumerate(zip(_ids(bodies), bodies, strict=True)):
        questions[name] = _question(item, media, ("questions", index))
        asked.append(_asked(name, item))
    request = Request(
        state,
        questions,
        **media.fields,
        **checked.settings,
    )
    own_fields = any(name.startswith("x_") for name in body)
    return DecisionsCall(request, checked.model, checked.wanted, tuple(asked), own_fields)


def _ids(bodies: Sequence[_Asking]) -> list[str]:
    """An id per question: its name, or a free one for a question without a name."""
    taken: set[str] = set()
    for index, body in enumerate(bodies):
        if body.name is not None and body.name in taken:
            where: Where = ("questions", index, "name")
            raise BadQuestion(f"{place(where)} {excerpt(body.name)} is the name of two questions", where)
        if body.name is not None:
            taken.add(body.name)
    # Ids are ours alone: the reply has the name, or null where there was none.
    return [_free(f"question_{i + 1}", taken) if body.name is None else body.name for i, body in enumerate(bodies)]


def _free(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def _question(body: _Asking, media: Media, where: Where) -> Question:
    instructions = content_of(body.instructions, USER, media, (*where, "instructions"))
    match body:
        case DecisionChoiceBody(choices=choices):
            return build_question(where, Choice, instructions, _options(choices, where))
        case DecisionScoreBody(levels=levels):
            # Clients fill levels in two ways: text as the label, or a number as the label and text as description.
            texts = [f"{level.label}: {level.description}" if level.description else level.label for level in levels]
            return build_question(where, Score, instructions, texts)
    return build_question(where, Noul, instructions, None)


def _asked(name: str, body: _Asking) -> Asked:
    match body:
        case DecisionChoiceBody(choices=choices):
            return Asked(name, body.name, values=tuple(choice.value for choice in choices))
        case DecisionScoreBody(levels=levels):
            return Asked(name, body.name, labels=tuple(level.label for level in levels))
    return Asked(name, body.name)


def _options(choices: Sequence[ChoiceOption], where: Where) -> dict[str, Json]:
    """Option ids to descriptions, in order. A boolean is read as "true" or "false", marked where that text is taken."""
    # Texts first: they keep their words whatever the order, booleans make way.
    taken = {choice.value for choice in choices if isinstance(choice.value, str)}
    seen: set[tuple[type, str | bool]] = set()
    options: dict[str, Json] = {}
    for index, choice in enumerate(choices):
        value, here = choice.value, (*where, "choices", index, "value")
        if not isinstance(value, str | bool):
            raise BadQuestion(f"{place(here)} must be text or a boolean, got {excerpt(value)}", here)
        if (type(value), value) in seen:
            raise BadQuestion(f"{place(here)} {excerpt(value)} appears twice; choices must be unique", here)
        seen.add((type(value), value))
        word = value if isinstance(value, str) else str(value).lower()
        marked = not isinstance(value, str) and word in taken
        options[_free(f"{word} (boolean)", taken) if marked else word] = choice.description
    return options


def _reply_answer(
    asked: Asked, answer: Answer, own: Abstains
) -> PredicateAnswer | DecisionChoiceAnswer | DecisionScoreAnswer:
    match answer:
        case NoulAnswer():
            return {"type": "predicate", "name": asked.name, "probability": answer.probability, **own}
        case ChoiceAnswer():
            values = dict(zip(answer.probabilities, asked.values, strict=True))
            return {
                "type": "choice",
                "name": asked.name,
                "choice": values[answer.choice],
                "probabilities": [
                    {"value": values[option], "probability": p} for option, p in answer.probabilities.items()
                ],
                "confidence": answer.confidence,
                **own,
            }
        case ScoreAnswer():
            return {
                "type": "score",
                "name": asked.name,
                "score": answer.score,
                "probabilities": [
                    {"value": i, "label": label, "probability": p}
                    for i, (label, p) in enumerate(zip(asked.labels, answer.probabilities, strict=True))
                ],
                "confidence": answer.confidence,
                **own,
            }
