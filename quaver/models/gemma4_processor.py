"""Pictures of a Gemma 4 prompt to ids and patches, by the release's own processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quaver.models.backbone import Media
from quaver.models.release_processor import Picture, ReleaseProcessor, blame, channels_first


class Gemma4Processor(ReleaseProcessor):
    """An image becomes its begin, as many soft tokens as its shape gives under a budget, and its end.

    ``budget`` is that of images unless told otherwise, None the release's own; see ``IMAGE_BUDGETS``.
    """

    def __init__(self, path: Path, budget: int | None = None) -> None:
        super().__init__(path)
        self._budget = budget

    def encode(self, text: str, images: Sequence[Picture], budget: int | None = None) -> Media:
        """``text`` with its placeholders, one for every image, as many tokens as each image has.

        Raises BadMedia, leading to the item, when the model cannot take its shape or ``budget``.
        """
        budget = budget or self._budget or self._processor.image_processor.max_soft_tokens
        try:
            return self._read(
                text,
                # The same pixels under another budget are other patches, and other tokens.
                [f"{image.digest}/{budget}" for image in images],
                images=[channels_first(image.pixels) for image in images],
                max_soft_tokens=budget,
            )
        except ValueError:
            blame(
                "images",
                images,
                lambda item: self._processor.image_processor([channels_first(item.pixels)], max_soft_tokens=budget),
            )
            raise
