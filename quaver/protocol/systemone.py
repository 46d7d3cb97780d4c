"""The System One dialect of TypeSafe: a map of questions in, a map of answers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, SkipValidation

from quaver.protocol.media_slots import Asset, Media, MediaLists, claim_assets, lift_parts, refuse_parts
from quaver.protocol.question_bodies import QUESTIONS, QuestionBody, question_of
from quaver.protocol.replies import Abstains, ChoiceReply, NoulReply, OwnReplyFields, ScoreReply, SystemOneReply
from quaver.protocol.types import Attachments, Dialect, OwnFields, Strict, Wanted, one_of, validated
from quaver.questions import (
    Answer,
    Answers,
    ChoiceAnswer,
    Json,
    LabelFacts,
    NoulAnswer,
    Question,
    Request,
    ScoreAnswer,
)


class Asking(OwnFields, MediaLists, Strict):
    """A body without what it is about. Unknown top-level fields are ignored, as the dialect asks."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = Field(None, description="A name from /v1/models; the served model when absent.")
    questions: dict[str, SkipValidation[QuestionBody]] = Field(min_length=1)
    assets: dict[str, Asset] | None = Field(None, min_length=1, max_length=128)


class SystemOneBody(Asking):
    """The body of ``POST /v1/systemone``."""

    state: Json = Field(description="What all questions are about: text or any JSON value.")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks of any state, checked once. ``questions`` still have the placeholders of assets in them."""

    body: Asking
    questions: Mapping[str, Question]
    listed: Media
    attachments: Attachments

    def about(self, state: Json) -> Request:
        """The request about ``state``; BadRequest when it, or media with it, cannot be asked about."""
        media = self.listed.copy()
        lifted = lift_parts(state, media)
        words = [text for question in self.questions.values() for text in (question.instructions, question.criteria)]
        # Anew for every state: an asset may stand in the state alone, and is counted after the state's own media.
        fill = claim_assets(self.body.assets or {}, self.attachments, media, [lifted, *words])
        filled = {name: _filled(question, fill) for name, question in self.questions.items() if self.body.assets}
        return Request(
            fill(lifted),
            filled or self.questions,
            **media.fields,
            **self.body.settings,
        )


def _filled(question: Question, fill: Callable[[Json], Json]) -> Question:
    """``question`` with its texts passed through ``fill``, which leaves the names of options as they are."""
    return replace(question, instructions=fill(question.instructions), criteria=fill(question.criteria))


@dataclass(frozen=True, slots=True)
class SystemOneCall:
    """A parsed body: what is asked, of which model, and how to word the reply."""

    request: Request
    model: str | None
    wanted: Wanted
    dialect: ClassVar[Dialect] = "systemone"

    def reply(self, answers: Answers) -> SystemOneReply:
        """The reply body, full precision."""
        return reply_body(answers, self.wanted)


def parse(body: Mapping[str, Any], attachments: Attachments | None = None, *, local: bool = False) -> SystemOneCall:
    """A body of checked JSON as what it asks; BadRequest when it breaks a rule.

    ``local`` is for callers in this process: media may then also be bytes, a ``Path``, or the path of a
    file as text. Never set it for a body that came from elsewhere.
    """
    checked = validated(SystemOneBody, dict(body))
    request = asked(checked, body["questions"], attachments or {}, local).about(checked.state)
    return SystemOneCall(request, checked.model, checked.wanted)


def asked(checked: Asking, questions: Mapping[str, Any], attachments: Attachments, local: bool = False) -> Asked:
    """What ``checked`` and its ``questions``, which pydantic has left as they came, ask of any state."""
    # Each question is checked by the model of its own type, so that its errors speak of that type alone.
    bodies = {name: one_of(QUESTIONS, item, ("questions", name)) for name, item in questions.items()}
    for name, item in bodies.items():
        refuse_parts(item.instructions, ("questions", name, "instructions"))
        refuse_parts(item.criteria, ("questions", name, "criteria"))
    made = {name: question_of(("questions", name), item) for name, item in bodies.items()}
    return Asked(checked, made, checked.media(local=local), attachments)


def reply_body(answers: Answers, wanted: Wanted) -> SystemOneReply:
    """Answers as the dialect words them."""
    return {
        "model": answers.model,
        "answers": {name: _reply_answer(item, abstains(answers, name)) for name, item in answers.items()},
        "usage": {
            "input_tokens": answers.input_tokens,
            # Nothing is written, but clients require the count.
            "output_tokens": 0,
            "input_tokens_details": {"cached_tokens": answers.cached_tokens},
        },
        **own_reply_fields(answers, wanted),
    }


def own_reply_fields(answers: Answers, wanted: Wanted) -> OwnReplyFields:
    """Our own part of a reply: what was cut is always said, times and settings only when asked for."""
    fields: OwnReplyFields = {"x_reading": answers.reading}
    if answers.labels is not None:
        _tell_labels(fields, answers.labels)
    if answers.calibration is not None:
        fields["x_calibration"] = answers.calibration
    if answers.truncated_tokens:
        fields["x_truncated"] = {"state_tokens": answers.truncated_tokens}
    if wanted.config:
        fields["x_config"] = dict(answers.config)
    if wanted.timing:
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


def _tell_labels(fields: OwnReplyFields, facts: Mapping[str, LabelFacts]) -> None:
    """Adds how answers were read off labels, by question; ties and spreads only where there are any."""
    fields["x_label_mass"] = {name: of.mass for name, of in facts.items()}
    fields["x_argmax_is_label"] = {name: of.argmax_is_label for name, of in facts.items()}
    if ties := {name: list(of.ties) for name, of in facts.items() if of.ties}:
        fields["x_ties"] = ties
    if spread := {name: of.order_spread for name, of in facts.items() if of.order_spread is not None}:
        fields["x_order_spread"] = spread


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
