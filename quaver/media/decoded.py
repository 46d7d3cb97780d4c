"""What decoding gives: arrays, and a digest of them by which equal content is known again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Samples per second of all decoded sound.
SAMPLE_RATE = 16_000


def _digest(kind: str, *parts: Any) -> str:
    """SHA-256, in hexadecimal, over a kind and its parts; arrays count with type, shape and every byte."""
    total = hashlib.sha256(kind.encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            # With its shape: the bytes of 2x3 and 3x2 pixels can be the same.
            total.update(f"|{part.dtype.str}{part.shape}|".encode())
            total.update(np.ascontiguousarray(part).data)
        else:
            total.update(f"|{part!r}|".encode())
    return total.hexdigest()


@dataclass(frozen=True, eq=False)
class Image:
    """RGB bytes [height, width, 3]."""

    pixels: NDArray[np.uint8]

    @cached_property
    def digest(self) -> str:
        """Over the pixels, whatever file or object they came from."""
        return _digest("image", self.pixels)


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono samples [n] in float32, 16,000 a second, full scale at 1."""

    samples: NDArray[np.float32]

    @cached_property
    def digest(self) -> str:
        return _digest("audio", self.samples)


@dataclass(frozen=True)
class VideoLength:
    """How many frames a video has, and how many a second."""

    total: int
    fps: float


@dataclass(frozen=True, eq=False)
class Video:
    """Some frames of a video: RGB bytes [taken, height, width, 3], and where they stood in it."""

    frames: NDArray[np.uint8]
    indices: tuple[int, ...]
    total: int
    fps: float

    @cached_property
    def digest(self) -> str:
        return _digest("video", self.frames, self.indices, self.total, self.fps)


@dataclass(frozen=True, eq=False)
class Film:
    """Frames at two a second, RGB bytes [even count, height, width, 3], and the sound, where there is any."""

    frames: NDArray[np.uint8]
    soundtrack: NDArray[np.float32] | None

    @cached_property
    def digest(self) -> str:
        return _digest("film", self.frames, self.soundtrack)
