"""The encoded bytes of an image, clip or video, from what a caller handed over."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from quaver.errors import BadMedia

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_DATA_URL = re.compile(r"data:[^,]*?;base64,", re.IGNORECASE)


def read_bytes(source: object, most: int) -> bytes:
    """``source`` is a data URL or raw base64 (text), encoded bytes, or, from the same process, a Path.

    Text is never taken for a file name, so a request cannot read files of the server, and no URL is
    fetched. Raises BadMedia for anything else and for more than ``most`` bytes.
    """
    match source:
        case str():
            data = _decode(source, most)
        case bytes() | bytearray() | memoryview():
            data = bytes(source)
        case Path():
            data = _read_file(source, most)
        case _:
            raise BadMedia(f"media must be a data URL, base64, bytes or a Path, got {type(source).__name__}")
    _check_size(len(data), most)
    if not data:
        raise BadMedia("media are empty; send the encoded file")
    return data


def _decode(text: str, most: int) -> bytes:
    header = _DATA_URL.match(text[:1024])
    if header is None and (scheme := _SCHEME.match(text[:64])):
        raise BadMedia(
            f"{scheme.group()} addresses are not fetched; send the file itself, "
            "as data:<type>;base64,<data> or raw base64"
        )
    payload = "".join((text[header.end() :] if header else text).split())
    # Four characters carry three bytes; refuse before decoding what cannot fit.
    _check_size(len(payload) * 3 // 4 - 2, most)
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMedia(
            f"media text is not valid base64 ({error}); within the same process a file is given as a Path"
        ) from error


def _read_file(path: Path, most: int) -> bytes:
    try:
        _check_size(path.stat().st_size, most)
        return path.read_bytes()
    except OSError as error:
        raise BadMedia(f"{path} cannot be read: {error.strerror or error}") from error


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise BadMedia(f"media have {size} bytes and at most {most} are allowed; send a smaller file")
