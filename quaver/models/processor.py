"""Decoded images and video frames to prompt ids and patches, by the release's own processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quaver.errors import BadMedia
from quaver.models.backbone import Media
from quaver.models.release_processor import Picture, ReleaseProcessor, blame, channels_first

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


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

    @property
    def digest(self) -> str:
        """Of the frames and their places, hexadecimal."""


class MediaProcessor(ReleaseProcessor):
    """The image and video half of a prompt of clef or clef-flash."""

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
            blame("images", images, lambda item: self._encode([item], []))
            blame("videos", videos, lambda item: self._encode([], [item]))
            raise BadMedia(f"the images and videos cannot be read together: {error}") from error

    def _encode(self, images: Sequence[Picture], videos: Sequence[Clip]) -> Media:
        clips: dict[str, Any] = {}
        if videos:
            clips = {
                "videos": [channels_first(clip.frames) for clip in videos],
                "video_metadata": [
                    {"total_num_frames": clip.total, "fps": clip.fps, "frames_indices": list(clip.indices)}
                    for clip in videos
                ],
                "do_sample_frames": False,
            }
        return self._read(
            IMAGE * len(images) + VIDEO * len(videos) + "\n",
            [image.digest for image in images] + [clip.digest for clip in videos],
            images=[channels_first(image.pixels) for image in images] or None,
            **clips,
        )
