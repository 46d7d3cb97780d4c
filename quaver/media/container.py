"""Audio and video files, opened so that they can neither reach other files nor raise anything but BadMedia."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import av

from quaver.errors import BadMedia

# Containers that hold their own data; a playlist would make the demuxer open files and addresses.
CONTAINERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,ogg,flv,gif,wav,mp3,flac,aac,aiff"
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
    except MemoryError as error:
        raise BadMedia(f"the {what} needs more memory to decode than is allowed; send a smaller one") from error
    except _DAMAGE as error:
        known = "MP4, WebM or Matroska" if what == "video" else "WAV, MP3, FLAC, Ogg or M4A"
        raise BadMedia(f"the {what} cannot be decoded ({error}); send a complete {known} file") from error


def first(container: Any, kind: str) -> Any:
    """The first stream of ``kind``, "video" or "audio"; None without one."""
    return next((stream for stream in container.streams if stream.type == kind), None)
