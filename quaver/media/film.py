"""Videos with their sound, as Clef-omni sees and hears them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import BadMedia
from quaver.media.audio import sound_of
from quaver.media.container import opened, video_stream
from quaver.media.decoded import Film
from quaver.media.frames import FrameStack
from quaver.media.limits import MediaLimits

FRAMES_PER_SECOND = 2
FRAME_PIXELS = 262_144
# Times are fractions that were rounded to floats.
TOLERANCE = 1e-6


def decode_film(data: bytes, limits: MediaLimits) -> Film:
    """Two frames a second, the first whose time reaches each half second, an even number of them; and the sound.

    Frames above 262,144 pixels are shrunk to that, sides even; of an odd count the last one is repeated.
    Raises BadMedia for a file without video, damage, or more of it than is allowed.
    """
    with opened(data, "video") as container:
        frames = _frames_of(container, limits)
    # Opened again: sound and picture are read one after the other, each from its start.
    with opened(data, "video") as container:
        return Film(frames, sound_of(container, limits.video_seconds))


def _frames_of(container: Any, limits: MediaLimits) -> NDArray[np.uint8]:
    frames = FrameStack(limits)
    for frame in container.decode(video_stream(container, limits)):
        # By its time and not by its number: phones record at rates that vary. Without a time it cannot be placed.
        if frame.time is None or frame.time + TOLERANCE < len(frames) / FRAMES_PER_SECOND:
            continue
        if frame.time > limits.video_seconds:
            raise BadMedia(f"the video is longer than the {limits.video_seconds:g} seconds that are allowed; cut it")
        frames.add(frame, *_scaled(frame.width, frame.height))
    if not frames:
        raise BadMedia("the video has no frames that can be decoded")
    # The model's patches span two frames in time.
    if len(frames) % 2:
        frames.repeat()
    return frames.stacked()


def _scaled(width: int, height: int) -> tuple[int, int]:
    """The size at which a frame is kept."""
    scale = min(1.0, math.sqrt(FRAME_PIXELS / (width * height)))
    return max(2, round(width * scale / 2) * 2), max(2, round(height * scale / 2) * 2)
