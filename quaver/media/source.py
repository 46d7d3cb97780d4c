"""The encoded bytes of an image, clip or video, from what a caller handed over."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from quaver.errors import BadMedia
from quaver.media.fetch import fetch
from quaver.media.folder import read_below
from quaver.media.policy import MediaPolicy

#: Only what the request itself carries.
CARRIED = MediaPolicy()

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_DATA_URL = re.compile(r"data:[^,]*?;base64,", re.IGNORECASE)
#: Linux's PATH_MAX; longer text can only have been meant as base64.
_LONGEST_PATH = 4096


def read_bytes(source: object, most: int, policy: MediaPolicy = CARRIED) -> bytes:
    """``source`` is text, encoded bytes, or, from the same process, a Path.

    Text is a data URL, raw base64, or, as far as ``policy`` allows, an http or https address, a ``file:`` URL
    or the path of a file in its folder; a path that could be base64 is base64. Raises BadMedia for anything
    else and for more than ``most`` bytes.
    """
    match source:
        case str():
            data = _from_text(source, most, policy)
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


def _from_text(text: str, most: int, policy: MediaPolicy) -> bytes:
    if header := _DATA_URL.match(text[:1024]):
        return _decode(text[header.end() :], most)
    scheme = _SCHEME.match(text[:64])
    match scheme.group(1).lower() if scheme else None:
        case "http" | "https":
            return fetch(text, most, policy)
        case "file":
            return _below(text, most, policy)
        case None:
            return _base64_or_path(text, most, policy)
        case "data":
            raise BadMedia("the data URL is not base64; write data:<type>;base64,<data>")
        case other:
            raise BadMedia(f"{other}: addresses are not read; send the file itself, as data:<type>;base64,<data>")


def _base64_or_path(text: str, most: int, policy: MediaPolicy) -> bytes:
    try:
        return _decode(text, most)
    except BadMedia:
        if policy.folder is None or len(text) > _LONGEST_PATH:
            raise
    try:
        return _below(text, most, policy)
    except BadMedia as error:
        raise BadMedia(f"{error}; it is not base64 either") from error


def _decode(text: str, most: int) -> bytes:
    payload = "".join(text.split())  # MIME's base64 has line ends (RFC 2045, 6.8)
    # Four characters carry three bytes; refuse before decoding what cannot fit.
    _check_size(len(payload) * 3 // 4 - 2, most)
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMedia(
            f"media text is not valid base64 ({error}); within the same process a file is given as a Path"
        ) from error


def _below(name: str, most: int, policy: MediaPolicy) -> bytes:
    if policy.folder is None:
        raise BadMedia(
            "files are not read by this server (--allow-media-dir names a folder that they are read from); "
            "send the file itself, as data:<type>;base64,<data>"
        )
    return read_below(policy.folder, name, most)


def _read_file(path: Path, most: int) -> bytes:
    try:
        _check_size(path.stat().st_size, most)
        return path.read_bytes()
    except OSError as error:
        raise BadMedia(f"{path} cannot be read: {error.strerror or error}") from error


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise BadMedia(f"media have {size} bytes and at most {most} are allowed; send a smaller file")
