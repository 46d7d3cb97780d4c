"""The questions of a System One body: their shapes on the wire, and how they become questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from quaver.errors import BadQuestion
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.types import Strict, build_question
from quaver.questions import MAX_LEVELS, MAX_OPTIONS, Choice, Json, Noul, Question, Score

# The types below are any JSON to pydantic: the questions themselves check it, in words that speak of questions, and
# so it is checked alike for callers in this process. The schemas are for the served document.
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


class QuestionFields(Strict):
    """What all three kinds of question have. Fields that are not known are refused here, unlike beside the questions:
    they would be part of what is asked."""

    # TypeSafe's documents require it, its OpenAPI does not, and the conformance suite asks a noul without.
    instructions: Json = None
    criteria: Json = None


class NoulBody(QuestionFields):
    """A yes/no question."""

    type: Literal["noul"]
    criteria: Sides = None


class ChoiceBody(QuestionFields):
    """One of several named options."""

    type: Literal["choice"]
    criteria: Options


class ScoreBody(QuestionFields):
    """A level on an ordered scale, lowest first."""

    type: Literal["score"]
    criteria: Levels


QuestionBody = Annotated[NoulBody | ChoiceBody | ScoreBody, Field(discriminator="type")]
QUESTIONS: Mapping[str, type[QuestionFields]] = {"noul": NoulBody, "choice": ChoiceBody, "score": ScoreBody}


def question_of(where: Where, body: QuestionFields) -> Question:
    """The question that ``body`` asks; BadQuestion, leading to ``where``, when it breaks a rule."""
    match body:
        case ChoiceBody():
            return build_question(where, Choice, body.instructions, body.criteria)
        case ScoreBody():
            return build_question(where, Score, body.instructions, body.criteria)
    return build_question(where, Noul, body.instructions, _sides(body.criteria, where))


def _sides(criteria: Json, where: Where) -> Json:
    """A noul's sides. Text describes the true side; prompts skip keys beside true and false, as the releases do."""
    # So sends the package systemone-client.
    if isinstance(criteria, str):
        return {"true": criteria}
    if isinstance(criteria, Mapping) and criteria and not criteria.keys() & {"true", "false"}:
        raise BadQuestion(
            f"{place(where)}: noul criteria describe true, false or both, got {excerpt(list(criteria))}",
            (*where, "criteria"),
        )
    return criteria
