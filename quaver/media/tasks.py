"""What can be asked of a decoder by name, in this process or in one of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quaver.media.audio import decode_audio
from quaver.media.film import decode_film
from quaver.media.image import decode_image
from quaver.media.limits import MediaLimits
from quaver.media.video import decode_video, measure_video

#: Each takes the bytes of a file, the limits, and the named arguments of its function; all are plain data.
TASKS: dict[str, Callable[..., Any]] = {
    "image": decode_image,
    "audio": decode_audio,
    "film": decode_film,
    "video": decode_video,
    "measure": measure_video,
}


class Decode(Protocol):
    """Runs one of ``TASKS``. Raises BadMedia for what cannot be decoded."""

    def __call__(self, task: str, data: bytes, limits: MediaLimits, **arguments: Any) -> Any: ...


def decode_here(task: str, data: bytes, limits: MediaLimits, **arguments: Any) -> Any:
    """In the caller's thread: a decoder that hangs or crashes takes the process along."""
    return TASKS[task](data, limits, **arguments)
