"""How large media may be."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import BadMedia

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """``*_bytes`` are encoded sizes; ``video_decoded_bytes`` bounds the frames that are kept.

    ``*_pixels`` bound the area of a picture or frame, ``*_side`` its longer side.
    """

    items: int = 64
    image_bytes: int = 20 * MIB
    image_pixels: int = 50_000_000
    image_side: int = 32_768
    audio_bytes: int = 64 * MIB
    audio_seconds: float = 3600.0
    video_bytes: int = 128 * MIB
    video_pixels: int = 16_777_216
    video_side: int = 8_192
    video_frames: int = 50_000
    video_seconds: float = 3600.0
    video_decoded_bytes: int = 2048 * MIB

    def check_size(self, what: str, width: int, height: int) -> None:
        """Raises BadMedia when ``what``, "image" or "video", is larger than its limits."""
        pixels, side = getattr(self, f"{what}_pixels"), getattr(self, f"{what}_side")
        if width * height > pixels:
            raise BadMedia(f"the {what} has {width}x{height} pixels; at most {pixels} in all are allowed")
        if max(width, height) > side:
            raise BadMedia(f"the {what} has {width}x{height} pixels; at most {side} on a side are allowed")


DEFAULT_LIMITS = MediaLimits()
