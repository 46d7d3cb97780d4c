"""The prompt of Liquid's decision models (d1), and the tokens that count for their labels.

Of a label's surface variants only the likeliest counts, as these models were trained. Source: vLLM 0.32
and 0.33, ``LiquidStrategy``, which follows the releases' ``prompt.py`` up to 26 options; the codes of more
are those of llama.cpp's ``d1_labels``, which follows it too.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from quaver.errors import BadQuestion
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.label_compatible import check_length, plain
from quaver.prompts.label_encoded import LabelEncoded, LabelSet
from quaver.prompts.opening import Opening
from quaver.prompts.render import json_text
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.prompts.whole_turn import WholeTurn
from quaver.questions import Choice, Json, Noul, Question, Request

LETTERS = string.ascii_uppercase
#: What stands in, in this order, for a code that has no token of its own.
POOL = (
    *LETTERS,
    *(f"{i:02}" for i in range(100)),
    *string.ascii_lowercase,
    *(f"#{i}" for i in range(200)),
    *(a + b for a in LETTERS for b in LETTERS),
)


class LiquidPrompt:
    """Writes requests for a d1 model; ``max_length`` is in tokens and nothing is ever cut."""

    def __init__(
        self, tokenizer: PromptTokenizer, turn: UserTurn, max_length: int, special_tokens: SpecialTokens = "escape"
    ) -> None:
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._turn = WholeTurn(tokenizer, turn, special_tokens)
        self._pool = self._tokens(POOL)

    def opening(self, images: int, videos: int) -> Opening:
        """How a turn with so many media begins, to be filled by their processor."""
        return self._turn.opening(images, videos)

    def encode(self, request: Request, opening: Opening | None = None) -> tuple[LabelEncoded, ...]:
        """One prompt per question, in order. TooLong when one does not fit; BadQuestion for one it cannot ask."""
        state = state_text(request.state)
        return tuple(self._encode(state, opening, *asked) for asked in request.questions.items())

    def _encode(self, state: str, opening: Opening | None, question_id: str, question: Question) -> LabelEncoded:
        labels = self._labels(question_id, question)
        asked = question_text(question, labels.labels)
        ids, state_end = self._turn.encode(state, f"\n\n\nQUESTION:\n{asked}" if state else asked, opening)
        check_length(question_id, len(ids), self.max_length)
        return LabelEncoded(ids, labels, question.option_ids, self._turn.media_start(opening), state_end)

    def _labels(self, question_id: str, question: Question) -> LabelSet:
        ways = self._ways(question_id, question)
        groups = [tuple(dict.fromkeys(self._tokens(row).values())) for row in ways]
        tokens = [token for group in groups for token in group]
        for (label, *_), group in zip(ways, groups, strict=True):
            if self._tokens([label]).get(label) not in group or len(set(tokens)) < len(tokens):
                raise BadQuestion(
                    f"question {question_id!r}: {label!r} is not one distinct token of this model",
                    ("questions", question_id),
                )
        return LabelSet.of_tokens([label for label, *_ in ways], groups)

    def _ways(self, question_id: str, question: Question) -> list[tuple[str, ...]]:
        """How a reply may write each label; the label itself comes first."""
        match question:
            case Noul():
                return [("yes", "Yes", "YES"), ("no", "No", "NO")]
            case Choice():
                return [(code, f" {code}") for code in self._codes(question_id, question)]
            case _:
                return [(level,) for level in question.option_ids]

    def _codes(self, question_id: str, question: Choice) -> list[str]:
        """The options' codes; one that is no token, or another's, gives way to the first of the pool that is free."""
        wanted = codes(question)
        tokens, found = self._tokens(wanted), dict[int, str]()
        for code in wanted:
            own = [(code, tokens[code])] if code in tokens else []
            free = ((text, token) for text, token in [*own, *self._pool.items()] if token not in found)
            text, token = next(free, ("", -1))
            if not text:
                raise BadQuestion(
                    f"question {question_id!r} has {len(wanted)} options and this model has {len(found)} codes; ask "
                    "with fewer",
                    ("questions", question_id, "criteria"),
                )
            found[token] = text
        return list(found.values())

    def _tokens(self, texts: Sequence[str]) -> dict[str, int]:
        """The tokens of those texts that are one."""
        ids = self._tokenizer.encode(texts, "reference")
        return {text: row[0] for text, row in zip(texts, ids, strict=True) if len(row) == 1}


def state_text(state: Json) -> str:
    """Text as it is, nothing for None, other JSON values indented by two."""
    if state is None:
        return ""
    return state if isinstance(state, str) else json_text(state, indent=2)


def question_text(question: Question, labels: Sequence[str]) -> str:
    """What follows the state and the heading; the options of a choice stand under ``labels``."""
    asked = plain(question.instructions)
    match question:
        case Noul():
            said = question.criteria or {}
            yes, no = (None if said.get(side) is None else plain(said[side]) for side in ("true", "false"))
            # A side without a description beside one that has it reads "None", as the source writes it.
            sides = f"\nYes: {yes}\nNo: {no}" if yes or no else ""
            return f"{asked}{sides}\n\nReply with yes or no only."
        case Choice():
            texts = [plain(about) or name.replace("_", " ") for name, about in question.options.items()]
            lines = "\n".join(f"{code} {text}" for code, text in zip(labels, texts, strict=True))
            return f"{asked}\n\nOptions:\n{lines}\n\nReply with the option code only."
        case _:
            levels = "\n".join(f"{i} {level}" for i, level in enumerate(question.criteria))
            return f"{asked}\n\n{levels}\n\nReply with a single digit 0-{len(question.criteria) - 1} only."


def codes(question: Choice) -> list[str]:
    """The options' own ids when each is a single letter, else A to Z, or two digits and more for more options."""
    names = [name.strip() for name in question.options]
    if all(len(name) == 1 and name.isalpha() for name in names):
        return names
    return list(LETTERS[: len(names)]) if len(names) <= len(LETTERS) else [f"{i:02}" for i in range(len(names))]
