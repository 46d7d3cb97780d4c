"""One user turn tokenised in one piece, as engines do that tokenise the rendered prompt."""

from __future__ import annotations

from quaver.errors import BadRelease
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.opening import Opening
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

    def opening(self, images: int, videos: int) -> Opening:
        """How a turn with so many media begins, to be filled by their processor."""
        return Opening.of(self._tokenizer, self._turn, images, videos)

    def media_start(self, opening: Opening | None) -> int:
        """Where the ids with the media begin, or would."""
        return 0 if opening else len(self._tokenizer.fixed(self._turn.head))

    def encode(self, state: str, question: str, opening: Opening | None = None) -> tuple[tuple[int, ...], int]:
        """The ids of a turn that shows the media of ``opening``, says ``state`` and then ``question``, and how
        many of them are the same whatever the question is."""
        ids = self._ids(state + question, self._special_tokens, opening)
        # The same with nothing after the state; where the two part, the question has had its say.
        alone = self._ids(state, self._special_tokens, opening)
        shared = next((i for i, (a, b) in enumerate(zip(ids, alone, strict=False)) if a != b), len(alone))
        return ids, shared

    def _ids(self, text: str, special_tokens: SpecialTokens, opening: Opening | None = None) -> tuple[int, ...]:
        # What the template would do if it were asked anew for every text.
        if self._turn.trims:
            text = text.rstrip()
        if self._turn.trims_after_media if opening else self._turn.trims:
            text = text.lstrip()
        start, before = (opening.ids, opening.rest) if opening else (self._tokenizer.fixed(self._start), self._before)
        if special_tokens == "reference":
            after, end = self._turn.tail, ""
        else:
            after, end = self._after, self._end
        [said] = self._tokenizer.encode([before + text + after], special_tokens)
        return (*start, *said, *self._tokenizer.fixed(end))
