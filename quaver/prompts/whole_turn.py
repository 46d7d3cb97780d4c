"""One user turn tokenised in one piece, as engines do that tokenise the rendered prompt."""

from __future__ import annotations

from collections.abc import Sequence

from quaver.errors import BadRelease
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens

#: Tells whether the pieces below give what the tokenizer gives for the whole; any plain text would do.
PROBE = "Is this plain text?\n\n1. yes"


class WholeTurn:
    """Encodes what a user says inside ``turn``, merging tokens across the borders of the user's text.

    With ``escape`` the control tokens of the template stay and those in the user's text are text: the
    text is encoded together with the template's words next to it, as far as the nearest control token.
    Raises BadRelease when that cannot give the tokenizer's own ids.
    """

    def __init__(self, tokenizer: PromptTokenizer, turn: UserTurn, special_tokens: SpecialTokens) -> None:
        self._tokenizer = tokenizer
        self._turn = turn
        self._special_tokens = special_tokens
        cut = max((turn.head.rfind(token) + len(token) for token in tokenizer.added if token in turn.head), default=0)
        self._start, self._before = turn.head[:cut], turn.head[cut:]
        cut = min((turn.tail.find(token) for token in tokenizer.added if token in turn.tail), default=len(turn.tail))
        self._after, self._end = turn.tail[:cut], turn.tail[cut:]
        if self._ids(PROBE, "escape") != self._ids(PROBE, "reference"):
            raise BadRelease(
                "the tokenizer's control tokens swallow the text beside them, so a user's text cannot be kept apart "
                'from them; use special_tokens="reference"'
            )

    def encode(self, state: str, question: str, media_ids: Sequence[int] = ()) -> tuple[tuple[int, ...], int]:
        """The ids of a turn that shows media and says ``state`` and then ``question``, and how many of them
        are the same whatever the question is."""
        ids = self._ids(state + question, self._special_tokens, media_ids)
        # The same with nothing after the state; where the two part, the question has had its say.
        alone = self._ids(state, self._special_tokens, media_ids)
        shared = next((i for i, (a, b) in enumerate(zip(ids, alone, strict=False)) if a != b), len(alone))
        return ids, shared

    def _ids(self, text: str, special_tokens: SpecialTokens, media_ids: Sequence[int] = ()) -> tuple[int, ...]:
        if self._turn.trims:
            text = text.rstrip() if media_ids else text.strip()
        head, before = (self._turn.head, "") if media_ids else (self._start, self._before)
        if special_tokens == "reference":
            after, end = self._turn.tail, ""
        else:
            after, end = self._after, self._end
        [said] = self._tokenizer.encode([before + text + after], special_tokens)
        return (*self._tokenizer.fixed(head), *media_ids, *said, *self._tokenizer.fixed(end))
