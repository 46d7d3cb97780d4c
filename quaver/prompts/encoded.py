"""What a prompt looks like to the engine: token ids and the spans that heads read."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]


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
