"""Decoded images and video frames to prompt ids and patches, by the release's own processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import torch

from quaver.errors import BadMedia
from quaver.models.backbone import Media

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
TENSORS = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


class Picture(Protocol):
    """A decoded image; ``quaver.media.Image`` is one."""

    @property
    def pixels(self) -> Any:
        """RGB bytes, [height, width, 3]."""


class Clip(Protocol):
    """Frames taken from a video; ``quaver.media.Video`` is one."""

    @property
    def frames(self) -> Any:
        """RGB bytes, [taken, height, width, 3]."""

    @property
    def indices(self) -> Sequence[int]:
        """Which frames of the video were taken."""

    @property
    def total(self) -> int:
        """How many frames the video has."""

    @property
    def fps(self) -> float:
        """Frames per second of the video."""


class MediaProcessor:
    """The image and video half of a Clef prompt.

    It is built on first use: a server that only reads text needs neither torchvision nor the
    release's processor files. Safe to share between threads.
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
            if getattr(processor.video_processor, "cap_pixels_per_frame", False) is None:
                processor.video_processor.cap_pixels_per_frame = False
        except Exception as error:  # a missing file, a missing torchvision and a broken one all differ
            raise BadMedia(f"this server cannot read images or videos: {error}") from error
        return processor

    def frames_of(self, total: int, fps: float) -> list[int]:
        """Which of a video's ``total`` frames the model looks at, in order."""
        from transformers.video_utils import VideoMetadata

        metadata = VideoMetadata(total_num_frames=total, fps=fps)
        return [int(index) for index in self._processor.video_processor.sample_frames(metadata)]

    def encode(self, images: Sequence[Picture], videos: Sequence[Clip]) -> Media | None:
        """All images, then all videos, in one piece that ends with a newline; None without any.

        Raises BadMedia, leading to the item, when the model cannot take its shape.
        """
        if not images and not videos:
            return None
        try:
            return self._encode(images, videos)
        except ValueError as error:
            for name, items, single in (
                ("images", images, lambda item: self._encode([item], [])),
                ("videos", videos, lambda item: self._encode([], [item])),
            ):
                _blame(name, items, single)
            raise BadMedia(f"the images and videos cannot be read together: {error}") from error

    def _encode(self, images: Sequence[Picture], videos: Sequence[Clip]) -> Media:
        # Channels first: with them last, an image three pixels high would be taken for one with them first.
        pictures = [torch.from_numpy(image.pixels).permute(2, 0, 1) for image in images]
        clips: dict[str, Any] = {}
        if videos:
            clips = {
                "videos": [clip.frames for clip in videos],
                "video_metadata": [
                    {"total_num_frames": clip.total, "fps": clip.fps, "frames_indices": list(clip.indices)}
                    for clip in videos
                ],
                "do_sample_frames": False,
            }
        text = IMAGE * len(images) + VIDEO * len(videos) + "\n"
        with self._one_at_a_time:
            encoded = self._processor(text=[text], images=pictures or None, return_tensors="pt", **clips)
        return Media(
            ids=tuple(encoded["input_ids"][0].tolist()),
            tensors={name: encoded[name] for name in TENSORS if name in encoded},
        )


def _blame(name: str, items: Sequence[Any], single: Callable[[Any], object]) -> None:
    """Raises for the first item that fails on its own."""
    for number, item in enumerate(items):
        try:
            single(item)
        except ValueError as error:
            raise BadMedia(f"item {number} of {name} cannot be used: {error}", (name, number)) from error
