"""Audio and video files, opened so that they can neither reach other files nor raise anything but BadMedia."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import av

from quaver.errors import BadMedia
from quaver.media.limits import MediaLimits

# Containers that hold their own data; a playlist would make the demuxer open files and addresses.
CONTAINERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,ogg,flv,gif,wav,mp3,flac,aac,aiff"
# Every thread holds frames and address space of its own.
THREADS = 4
# What FFmpeg's wrapper raises for files that are damaged, besides its own errors.
_DAMAGE = (av.FFmpegError, ValueError, OverflowError, EOFError, ArithmeticError)


@contextmanager
def opened(data: bytes, what: str) -> Iterator[Any]:
    """The file's container. Raises BadMedia for what is not ``what``, "video" or "audio", or is damaged."""
    try:
        with av.open(BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            yield container
    except BadMedia:
        raise
    except (MemoryError, BlockingIOError) as error:  # the second when a thread's stack does not fit any more
        raise BadMedia(f"the {what} needs more memory to decode than is allowed; send a smaller one") from error
    except _DAMAGE as error:
        known = "MP4, WebM or Matroska" if what == "video" else "WAV, MP3, FLAC, Ogg or M4A"
        raise BadMedia(f"the {what} cannot be decoded ({error}); send a complete {known} file") from error


def audio_stream(container: Any) -> Any:
    """The first audio stream; None without one."""
    return _first(container, "audio")


def video_stream(container: Any, limits: MediaLimits) -> Any:
    """The first video stream, set up for decoding. Raises BadMedia without one or when its frames are too large."""
    stream = _first(container, "video")
    if stream is None:
        raise BadMedia("the file has no video stream")
    limits.check_size("video", stream.width, stream.height)
    # A stream may grow on the way; FFmpeg checks every frame before it takes memory for it.
    stream.codec_context.options = {"max_pixels": str(limits.video_pixels)}
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = THREADS
    return stream


def _first(container: Any, kind: str) -> Any:
    stream = next((stream for stream in container.streams if stream.type == kind), None)
    if stream is not None and stream.codec_context is None:
        raise BadMedia(f"the file's {kind} is in a codec that is not known; encode it again")
    return stream
