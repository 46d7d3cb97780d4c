"""Videos to the frames that a model looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from quaver.errors import BadMedia
from quaver.media.limits import DEFAULT_LIMITS, MediaLimits
from quaver.media.source import read_bytes

# Containers that hold their own data; a playlist would make the demuxer open files and addresses.
CONTAINERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,ogg,flv,gif"


@dataclass(frozen=True, slots=True)
class Video:
    """Some frames of a video: RGB bytes [taken, height, width, 3], and where they stood in it."""

    frames: NDArray[np.uint8]
    indices: tuple[int, ...]
    total: int
    fps: float


def read_video(
    source: object, choose: Callable[[int, float], Sequence[int]], limits: MediaLimits = DEFAULT_LIMITS
) -> Video:
    """The frames that ``choose(total, fps)`` names, ascending; only those are kept while decoding.

    ``source`` as in ``read_bytes``. Raises BadMedia for what is no video, is damaged or incomplete,
    or is larger than ``limits`` allow.
    """
    data = read_bytes(source, limits.video_bytes)
    try:
        with av.open(BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            return _take(container, choose, limits)
    except BadMedia:
        raise
    except (av.FFmpegError, ValueError, OverflowError, EOFError) as error:
        raise BadMedia(f"the video cannot be decoded ({error}); send a complete MP4, WebM or Matroska file") from error


def _take(container: Any, choose: Callable[[int, float], Sequence[int]], limits: MediaLimits) -> Video:
    if not container.streams.video:
        raise BadMedia("the file has no video stream")
    stream = container.streams.video[0]
    total = stream.frames or _count(container, limits)
    if not total or not stream.average_rate:
        raise BadMedia("the video has no frames or no frame rate; send a complete file")
    if total > limits.video_frames:
        raise BadMedia(
            f"the video has {total} frames and at most {limits.video_frames} are allowed; send a shorter one"
        )
    fps = float(stream.average_rate)
    indices = tuple(choose(total, fps))
    size = len(indices) * stream.width * stream.height * 3
    if size > limits.video_decoded_bytes:
        raise BadMedia(
            f"the {len(indices)} frames of {stream.width}x{stream.height} would take {size} bytes and at most "
            f"{limits.video_decoded_bytes} are allowed; send a shorter or smaller video"
        )
    wanted, frames = set(indices), []
    for number, frame in enumerate(container.decode(video=0)):
        if number in wanted:
            frames.append(frame.to_ndarray(format="rgb24"))
        if number >= indices[-1]:
            break
    if len(frames) != len(wanted):
        raise BadMedia(f"the video says it has {total} frames and holds fewer; send a complete file")
    return Video(np.stack(frames), indices, total, fps)


def _count(container: Any, limits: MediaLimits) -> int:
    """Frames of a container that does not say how many it has, by its packets; back at the start afterwards."""
    total = 0
    for packet in container.demux(video=0):
        total += packet.size > 0
        if total > limits.video_frames:
            break
    container.seek(0)
    return total
