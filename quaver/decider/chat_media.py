"""The pictures of a request about which a model is asked in a chat: decoded, and made the beginning of its prompt."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.media import UPRIGHT, ImageRule, MediaReader
from quaver.models.backbone import Media
from quaver.models.chat_release import EncodesPictures
from quaver.questions import Request


@dataclass(frozen=True, slots=True)
class ChatMedia:
    """The images of requests as a release's own processor encodes them; ``reader`` says where they may come from.

    A request may choose a budget only where the processor has some, see ``Limits``.
    """

    processor: EncodesPictures
    reader: MediaReader
    rule: ImageRule = UPRIGHT

    def __call__(self, request: Request, text: str) -> Media:
        """Those of ``request``; the ids are all of ``text``, with which its prompt opens, and which has a
        placeholder for every one. Raises BadMedia, leading to the item."""
        read = self.reader.begun()
        images = read.each("images", request.images, lambda source: read.image(source, self.rule))
        budget = {} if request.image_budget is None else {"budget": request.image_budget}
        return self.processor.encode(text, images, **budget)
