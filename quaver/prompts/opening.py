"""How the turn of a user begins who shows something: the template's words with media between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quaver.prompts.chat_template import UserTurn
from quaver.prompts.tokenizer import PromptTokenizer


@dataclass(frozen=True, slots=True)
class Opening:
    """``text`` holds the template's own placeholder for every image, then for every video, and ends with a
    control token; ``rest`` are the template's words between it and the user's.

    ``ids`` are those of ``text`` once the placeholders have become as many tokens as the media have.
    """

    text: str
    rest: str
    ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: PromptTokenizer, turn: UserTurn, images: int, videos: int) -> Opening:
        """The opening of ``turn`` with so many media, its ids not known yet."""
        return cls(*tokenizer.parted(turn.opening(images, videos)))

    def filled(self, ids: Sequence[int]) -> Opening:
        """The same with its ids."""
        return replace(self, ids=tuple(ids))
