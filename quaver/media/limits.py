"""How large media may be."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Encoded sizes in bytes, pictures in pixels; ``video_decoded_bytes`` bounds the frames that are kept."""

    image_bytes: int = 20 * MIB
    image_pixels: int = 50_000_000
    video_bytes: int = 128 * MIB
    video_frames: int = 50_000
    video_decoded_bytes: int = 2048 * MIB


DEFAULT_LIMITS = MediaLimits()
