"""Frames of one size, collected while a video is decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import BadMedia
from quaver.media.limits import MediaLimits


class FrameStack:
    """Grows frame by frame in one piece of memory: stacking a list at the end would take twice as much."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._bytes = bytearray()
        self._shape: tuple[int, ...] = ()
        self._last: NDArray[np.uint8] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, frame: Any, width: int | None = None, height: int | None = None) -> None:
        """Keeps a decoded frame as RGB, scaled when a size is given.

        Raises BadMedia when it has another shape than the first one, or memory would pass the limit.
        """
        self._limits.check_size("video", frame.width, frame.height)
        pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
        if self._count and pixels.shape != self._shape:
            raise BadMedia("the video changes its size on the way; encode it in one size")
        size, most = len(self._bytes) + pixels.nbytes, self._limits.video_decoded_bytes
        if size > most:
            raise BadMedia(
                f"{self._count + 1} frames of {pixels.shape[1]}x{pixels.shape[0]} take {size} bytes and at most "
                f"{most} are allowed; send a shorter or smaller video"
            )
        self._shape = pixels.shape
        self._last = np.ascontiguousarray(pixels)
        self._bytes += self._last.data
        self._count += 1

    def repeat(self) -> None:
        """Keeps the last frame once more."""
        assert self._last is not None, "there is a last frame"
        self._bytes += self._last.data
        self._count += 1

    def stacked(self) -> NDArray[np.uint8]:
        """[count, height, width, 3]."""
        return np.frombuffer(self._bytes, np.uint8).reshape(self._count, *self._shape)
