"""The questions of a System One body: their shapes on the wire, and how they become questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from quaver.errors import BadQuestion
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.types import Strict, build_question
from quaver.questions import MAX_LEVELS, MAX_OPTIONS, Choice, Json, Noul, Question, Score

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
    """What all three kinds of question have."""

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


def questions_of(
    bodies: Mapping[str, QuestionFields], fill: Callable[[Json], Json] = lambda text: text
) -> dict[str, Question]:
    """The questions that ``bodies`` ask, their texts passed through ``fill``. BadQuestion when one breaks a rule."""
    return {name: _question(("questions", name), body, fill) for name, body in bodies.items()}


def _question(where: Where, body: QuestionFields, fill: Callable[[Json], Json]) -> Question:
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
