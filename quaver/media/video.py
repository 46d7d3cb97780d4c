"""Videos to the frames that a model chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quaver.errors import BadMedia
from quaver.media.container import opened, video_stream
from quaver.media.decoded import Video, VideoLength
from quaver.media.frames import FrameStack
from quaver.media.limits import MediaLimits


def measure_video(data: bytes, limits: MediaLimits) -> VideoLength:
    """By the container's header, or by its packets. Raises BadMedia for no video, damage, or too much of it."""
    with opened(data, "video") as container:
        stream = video_stream(container, limits)
        # Matroska, WebM and transport streams have no count of frames.
        total = stream.frames or _count(container, limits)
        if not total or not stream.average_rate:
            raise BadMedia("the video has no frames or no frame rate; send a complete file")
        if total > limits.video_frames:
            raise BadMedia(
                f"the video has {total} frames and at most {limits.video_frames} are allowed; send a shorter one"
            )
        fps = float(stream.average_rate)
        if total / fps > limits.video_seconds:
            raise BadMedia(f"the video is longer than the {limits.video_seconds:g} seconds that are allowed; cut it")
        return VideoLength(total, fps)


def decode_video(data: bytes, limits: MediaLimits, indices: Sequence[int], total: int, fps: float) -> Video:
    """The frames at ``indices`` of a video that was measured."""
    with opened(data, "video") as container:
        stream = video_stream(container, limits)
        size, most = len(indices) * stream.width * stream.height * 3, limits.video_decoded_bytes
        if size > most:
            raise BadMedia(
                f"the {len(indices)} frames of {stream.width}x{stream.height} would take {size} bytes and at most "
                f"{most} are allowed; send a shorter or smaller video"
            )
        wanted, frames = set(indices), FrameStack(limits)
        # Decoded from the start: seeking lands on key frames, and their times do not number the frames between.
        for number, frame in enumerate(container.decode(stream)):
            if number in wanted:
                frames.add(frame)
            if number >= indices[-1]:
                break
        if len(frames) != len(wanted):
            raise BadMedia(f"the video says it has {total} frames and holds fewer; send a complete file")
        return Video(frames.stacked(), tuple(indices), total, fps)


def _count(container: Any, limits: MediaLimits) -> int:
    """Frames of a container that does not say how many it has, by its packets."""
    total = 0
    for packet in container.demux(video=0):
        total += packet.size > 0  # the last packet is empty: it only says that the file ends
        if total > limits.video_frames:
            break
    return total
