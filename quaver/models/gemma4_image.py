"""Images of a Gemma 4 prompt: how many tokens each takes, and the patches that the model reads.

Sources: transformers 5.24 ``Gemma4ImageProcessor`` and ``Gemma4UnifiedImageProcessor``, which prepare the
pixels, and ``get_aspect_ratio_preserving_size`` of their processor, which says what size they have then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from quaver.errors import BadMedia, BadRelease
from quaver.models.backbone import Media
from quaver.models.release_processor import Picture, blame, channels_first

#: Image processors, by the type of a release's configuration.
PROCESSORS = {"gemma4": "Gemma4ImageProcessor", "gemma4_unified": "Gemma4UnifiedImageProcessor"}
#: Pixels of a patch's side, and patches of a token's side, of all releases.
PATCH, POOL = 16, 3


def image_grid(width: int, height: int, budget: int, patch: int = PATCH, pool: int = POOL) -> tuple[int, int]:
    """Columns and rows of tokens that an image of ``width`` x ``height`` pixels takes under ``budget``.

    The image is shrunk or enlarged until it fills the budget, its sides cut to whole tokens; its pixels need
    not be known. Images longer than the budget is wide are squeezed to one row or column of it.
    """
    from transformers.models.gemma4.processing_gemma4 import get_aspect_ratio_preserving_size

    high, wide = get_aspect_ratio_preserving_size(height, width, patch, budget * pool**2, pool)
    return wide // (patch * pool), high // (patch * pool)


def image_tokens(width: int, height: int, budget: int) -> int:
    """Tokens that an image takes, without the two that stand around it."""
    columns, rows = image_grid(width, height, budget)
    return columns * rows


class Gemma4Images:
    """Makes the beginning of a prompt with images. Safe to share between threads.

    ``tokenize`` gives the ids of a text of the template; ``placeholder`` is what it writes for one image.
    ``limit``: tokens that a whole prompt may have. ``budget`` holds unless told otherwise, None is the
    release's own. The image processor is built on first use: a server that reads text needs no torchvision.

    Raises BadRelease when the template's placeholder is not the model's image token.
    """

    def __init__(
        self,
        path: Path,
        config: Any,
        tokenize: Callable[[str], Sequence[int]],
        placeholder: str,
        limit: int,
        budget: int | None = None,
    ) -> None:
        self._path = path
        self._kind: str = config.model_type
        self._around: tuple[int, int] = config.boi_token_id, config.eoi_token_id
        self._image: int = config.image_token_id
        self._tokenize = tokenize
        self._limit = limit
        self._budget = budget
        if list(tokenize(placeholder)).count(self._image) != 1:
            raise BadRelease(
                f"{path} writes {placeholder!r} for an image, in which its image token {self._image} stands not once"
            )

    @property
    def budget(self) -> int:
        """The budget in force. Raises BadMedia when the release's own has to be known and cannot be read."""
        return self._budget or int(self._processor.max_soft_tokens)

    def encode(self, text: str, images: Sequence[Picture], budget: int | None = None) -> Media:
        """``text``, which has a placeholder for every image, with as many tokens as each image has.

        Raises BadMedia, leading to the item, for an image that cannot be prepared or with which the ids grow
        over the limit; that is found before any pixels are.
        """
        budget, processor = budget or self.budget, self._processor
        shapes = [image.pixels.shape for image in images]
        grids = [
            image_grid(shape[1], shape[0], budget, processor.patch_size, processor.pooling_kernel_size)
            for shape in shapes
        ]
        ids: list[int] = []
        starts: list[int] = []
        for token in self._tokenize(text):
            if token != self._image:
                ids.append(token)
                continue
            columns, rows = grids[len(starts)]
            starts.append(len(ids))
            ids += [self._around[0], *[token] * (columns * rows), self._around[1]]
            if len(ids) > self._limit:
                raise too_many(len(starts) - 1, self._limit)
        # Equal pixels under another budget are other patches.
        digests = [
            sha256(f"{image.digest} {columns}x{rows}".encode()).digest()
            for image, (columns, rows) in zip(images, grids, strict=True)
        ]
        tensors = self._patches(images, budget)
        return Media(tuple(ids), tensors, tuple(zip(starts, digests, strict=True)))

    def _patches(self, images: Sequence[Picture], budget: int) -> dict[str, Any]:
        """``pixel_values`` [images, patches, values] in float32 and ``image_position_ids`` [images, patches, 2]."""

        def prepared(some: Sequence[Picture]) -> Any:
            pixels = [channels_first(image.pixels) for image in some]
            return self._processor(images=pixels, max_soft_tokens=budget, return_tensors="pt")

        try:
            found = prepared(images)
        except ValueError:
            blame("images", images, lambda image: prepared([image]))
            raise
        return {name: found[name] for name in ("pixel_values", "image_position_ids")}

    @cached_property
    def _processor(self) -> Any:
        try:
            import transformers

            return getattr(transformers, PROCESSORS[self._kind]).from_pretrained(self._path, local_files_only=True)
        except Exception as error:  # a missing file, a missing torchvision and a broken one all differ
            raise BadMedia(f"this server cannot read images: {error}") from error


def too_many(number: int, limit: int) -> BadMedia:
    """For the image with which a prompt opens longer than a whole one may be."""
    return BadMedia(
        f"images item {number}: with it the media have over {limit} tokens, which is what a whole prompt may have "
        "here; send fewer, or allow each fewer tokens",
        ("images", number),
    )
