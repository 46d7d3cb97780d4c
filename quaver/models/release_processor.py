"""The processor that a release comes with: tokenizer, patches and features, run as transformers has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor

from quaver.errors import BadMedia
from quaver.models.backbone import Media

#: What backbones read of a processor's output.
TENSORS = (
    "pixel_values",
    "image_grid_thw",
    "pixel_values_videos",
    "video_grid_thw",
    "video_second_per_grid",
    "input_features",
    "feature_attention_mask",
    "spatial_shapes",
    "pixel_attention_mask",
)
#: What stands around one item, in the families that have it.
OPENING = ("<|vision_start|>", "<|audio_start|>", "<|image_start|>")
CLOSING = ("<|vision_end|>", "<|audio_end|>", "<|image_end|>")


class Picture(Protocol):
    """A decoded image; ``quaver.media.Image`` is one."""

    @property
    def pixels(self) -> Any:
        """RGB bytes, [height, width, 3]."""

    @property
    def digest(self) -> str:
        """Of the pixels, hexadecimal."""


class ReleaseProcessor:
    """Built on first use: a server that only reads text needs neither torchvision nor the release's
    processor files. Safe to share between threads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Fast tokenizers inside the processor are set up per call and must not be shared meanwhile.
        self._one_at_a_time = Lock()

    @cached_property
    def _processor(self) -> Any:
        try:
            from transformers import AutoProcessor

            factory: Any = AutoProcessor
            processor = factory.from_pretrained(self._path, local_files_only=True)
            # transformers will change what an unset cap means; releases were made without one.
            videos: Any = getattr(processor, "video_processor", None)
            if getattr(videos, "cap_pixels_per_frame", False) is None:
                videos.cap_pixels_per_frame = False
        except Exception as error:  # a missing file, a missing torchvision and a broken one all differ
            raise BadMedia(f"this server cannot read images, videos or sound: {error}") from error
        return processor

    def _read(self, text: str, digests: Sequence[str], **media: Any) -> Media:
        """``text`` with its placeholders expanded; ``digests`` are those of the items, in the order of ``text``.

        Raises ValueError for what the processor does not take.
        """
        processor = self._processor
        with self._one_at_a_time:
            encoded = processor(text=[text], return_tensors="pt", **media)
        ids = tuple(encoded["input_ids"][0].tolist())
        return Media(
            ids,
            tensors={name: encoded[name] for name in TENSORS if name in encoded},
            digests=tuple(zip(self._starts(ids), (sha256(d.encode()).digest() for d in digests), strict=True)),
        )

    def _starts(self, ids: Sequence[int]) -> list[int]:
        """Where each item begins; the frames and the sound of a video open and close inside of it."""
        opening, closing = map(self._processor.tokenizer.convert_tokens_to_ids, (OPENING, CLOSING))
        starts, depth = [], 0
        for position, token in enumerate(ids):
            if token in opening:
                if not depth:
                    starts.append(position)
                depth += 1
            depth -= token in closing
        return starts


def channels_first(pixels: Any) -> Tensor:
    """[..., height, width, 3] to [..., 3, height, width]: with the colours last, a picture three pixels high
    could be taken for one that has them first."""
    return torch.from_numpy(pixels).movedim(-1, -3)


def blame(name: str, items: Sequence[Any], single: Callable[[Any], object]) -> None:
    """Raises BadMedia for the first of ``items`` on which ``single`` fails."""
    for number, item in enumerate(items):
        try:
            single(item)
        except ValueError as error:
            raise BadMedia(f"item {number} of {name} cannot be used: {error}", (name, number)) from error
