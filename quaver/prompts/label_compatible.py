"""Prompts of label reads exactly as vLLM's structured decisions write them, to compare answers with theirs.

The rendered chat is tokenised in one piece, options stand in request order, every label has one
token, and nothing is cut. Source: vLLM 0.32 and 0.33, ``NextTokenStrategy`` and its question types.
"""

from __future__ import annotations

import string

from quaver.errors import BadQuestion, BadRelease, TooLong
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.label_encoded import LabelEncoded, LabelSet
from quaver.prompts.label_schemes import reply_ids
from quaver.prompts.opening import Opening
from quaver.prompts.render import json_text
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.prompts.whole_turn import WholeTurn
from quaver.questions import Choice, Json, Noul, Question, Request

LABELS = {"noul": ("yes", "no"), "score": tuple(string.digits), "choice": tuple(string.ascii_uppercase)}
REPLY = {
    "noul": "Answer with yes or no only.",
    "score": "Answer with the number of one level only.",
    "choice": "Answer with the letter of one option only.",
}


class CompatibleLabelPrompt:
    """Writes requests as vLLM does. Raises BadRelease when a label is not one distinct token after the prompt."""

    def __init__(
        self, tokenizer: PromptTokenizer, turn: UserTurn, max_length: int, special_tokens: SpecialTokens = "escape"
    ) -> None:
        self.max_length = max_length
        self._turn = WholeTurn(tokenizer, turn, special_tokens)
        self._tokens = {kind: single_tokens(tokenizer, turn.tail, labels) for kind, labels in LABELS.items()}

    def opening(self, images: int, videos: int) -> Opening:
        """How a turn with so many media begins, to be filled by their processor."""
        return self._turn.opening(images, videos)

    def encode(self, request: Request, opening: Opening | None = None) -> tuple[LabelEncoded, ...]:
        """One prompt per question, in order. TooLong when one does not fit; BadQuestion for too many options."""
        # Text as it is and JSON else, while what stands in a question goes through str(), see plain: both as in vLLM.
        state = state_text(request.state)
        return tuple(self._encode(state, opening, *asked) for asked in request.questions.items())

    def _encode(self, state: str, opening: Opening | None, question_id: str, question: Question) -> LabelEncoded:
        labels, count = LABELS[question.type], len(question.option_ids)
        # vLLM's own limit: 26 letters, 10 digits.
        if count > len(labels):
            raise BadQuestion(
                f"question {question_id!r} has {count} options and this style of prompt has {len(labels)} labels; ask "
                "fewer, or use the other style",
                ("questions", question_id),
            )
        ids, state_end = self._turn.encode(state, f"\n\n{question_text(question)}", opening)
        check_length(question_id, len(ids), self.max_length)
        tokens = self._tokens[question.type][:count]
        labelled = LabelSet.of_tokens(labels[:count], [(token,) for token in tokens])
        return LabelEncoded(ids, labelled, question.option_ids, self._turn.media_start(opening), state_end)


def check_length(question_id: str, length: int, limit: int) -> None:
    """TooLong for a prompt that does not fit, for prompts of which nothing is ever cut."""
    if length > limit:
        raise TooLong(
            f"question {question_id!r} makes a prompt of {length} tokens and the limit is {limit}; this kind of prompt "
            "is never cut, so shorten the state",
            ("questions", question_id),
        )


def single_tokens(tokenizer: PromptTokenizer, tail: str, labels: tuple[str, ...]) -> list[int]:
    """The token of each label after the prompt. Raises BadRelease unless each has one of its own."""
    tokens: list[int] = []
    for label, ids in zip(labels, reply_ids(tokenizer, tail, labels), strict=True):
        if ids is None or len(ids) != 1 or ids[0] in tokens:
            raise BadRelease(f"the label {label!r} is not one distinct token after this model's chat prompt")
        tokens.append(ids[0])
    return tokens


def question_text(question: Question) -> str:
    """What follows the state."""
    instructions = plain(question.instructions)
    head = [f"Question: {instructions}"] if instructions else []
    return "\n".join([*head, *_lines(question), REPLY[question.type]])


def _lines(question: Question) -> list[str]:
    match question:
        case Noul():
            said = question.criteria or {}
            sides = (("yes", plain(said.get("true"))), ("no", plain(said.get("false"))))
            return [f"{label}: {about}" if about else label for label, about in sides]
        case Choice():
            names = [f"{name} - {about}" if (about := plain(of)) else name for name, of in question.options.items()]
            return [f"{label}: {name}" for label, name in zip(LABELS["choice"], names, strict=False)]
        case _:
            return [f"{i}: {level}" for i, level in enumerate(question.criteria)]


def state_text(state: Json) -> str:
    """Text as it is, other JSON values with Python's default separators."""
    return state if isinstance(state, str) else json_text(state)


def plain(value: Json) -> str:
    """Text, or a JSON value as Python prints it, or nothing."""
    return "" if value is None else str(value)
