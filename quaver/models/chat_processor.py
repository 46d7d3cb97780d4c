"""Pictures of a chat prompt to ids and the tensors that its model reads, by the release's own processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quaver.models.backbone import Media
from quaver.models.release_processor import Picture, ReleaseProcessor, blame, channels_first


class ChatProcessor(ReleaseProcessor):
    """The pictures of chat models. ``pixels`` bounds those of a picture, least and most, where a release is
    read with other bounds than its files name; None leaves them.
    """

    def __init__(self, path: Path, pixels: tuple[int, int] | None = None) -> None:
        super().__init__(path)
        self._bounds = (
            {} if pixels is None else {"size": dict(zip(("shortest_edge", "longest_edge"), pixels, strict=True))}
        )

    def encode(self, text: str, images: Sequence[Picture]) -> Media:
        """``text`` with its placeholders, one for every image, as many tokens as each image has.

        Raises BadMedia, leading to the item, when the model cannot take its shape.
        """
        try:
            return self._read(
                text,
                [image.digest for image in images],
                images=[channels_first(image.pixels) for image in images],
                add_special_tokens=False,  # the template has written them
                **self._bounds,
            )
        except ValueError:
            blame(
                "images",
                images,
                lambda item: self._processor.image_processor([channels_first(item.pixels)], **self._bounds),
            )
            raise
