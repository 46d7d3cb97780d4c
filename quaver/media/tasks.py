"""What can be asked of a decoder by name, in this process or in one of a pool."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from quaver.errors import BadMedia
from quaver.media.limits import MediaLimits

#: Each takes the bytes of a file, the limits, and the named arguments of its function; all are plain data.
TASKS = {
    "image": ("quaver.media.image", "decode_image"),
    "audio": ("quaver.media.audio", "decode_audio"),
    "film": ("quaver.media.film", "decode_film"),
    "video": ("quaver.media.video", "decode_video"),
    "measure": ("quaver.media.video", "measure_video"),
}


class Decode(Protocol):
    """Runs one of ``TASKS``. Raises BadMedia for what cannot be decoded."""

    def __call__(self, task: str, data: bytes, limits: MediaLimits, **arguments: Any) -> Any: ...


def decode_here(task: str, data: bytes, limits: MediaLimits, **arguments: Any) -> Any:
    """In the caller's thread: a decoder that hangs or crashes takes the process along.

    The libraries that decode are loaded on first use, so that text needs none of them.
    """
    module, function = TASKS[task]
    try:
        decode = getattr(import_module(module), function)
    except ImportError as error:
        raise BadMedia(f"{task} cannot be read here: {error}; install quaver with its media extra") from error
    return decode(data, limits, **arguments)
