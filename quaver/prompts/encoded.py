"""What a prompt looks like to the engine: token ids and the spans that heads read."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import TooLong
from quaver.questions import OverflowRule

Span = tuple[int, int]


def over(state: int, room: int, limit: int, on_overflow: OverflowRule) -> int:
    """How many of a state's tokens have to be cut from its end so that ``room`` holds the rest.

    Raises TooLong instead when the rule is to refuse. ``limit`` is that of the whole prompt.
    """
    # From its end: what was kept is then the prefix of what would have been read, and can be reused.
    truncated = max(0, state - room)
    if truncated and on_overflow == "refuse":
        raise TooLong(
            f"the state has {state} tokens and {room} of the limit of {limit} are left for it; "
            "shorten it, or allow truncation",
            ("state",),
        )
    return truncated


@dataclass(frozen=True, slots=True)
class EncodedQuestion:
    """Half-open token index pairs of one question; options in the order the model reads them."""

    type: str
    span: Span
    option_spans: tuple[Span, ...]
    option_ids: tuple[str, ...]

    def shifted(self, by: int) -> EncodedQuestion:
        """The same question ``by`` tokens further on."""
        return EncodedQuestion(
            self.type,
            (self.span[0] + by, self.span[1] + by),
            tuple((start + by, end + by) for start, end in self.option_spans),
            self.option_ids,
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """One prompt for a joint read.

    ``state_end`` is where the part that depends on the state and its media ends: a later prompt with
    the same first ``state_end`` ids may reuse everything computed for them. ``media_start`` is where
    the media tokens begin. ``truncated`` counts state tokens that were cut.
    """

    ids: tuple[int, ...]
    questions: tuple[EncodedQuestion, ...]
    media_start: int
    state_end: int
    truncated: int = 0
