"""The bytes of a request: read under a limit, decompressed under the same limit, split into form parts."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, cast

import zstandard
from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from quaver.protocol import Attachments
from quaver.server.form import read_form

#: The largest zstd window accepted, in bytes; a frame may ask its reader for gigabytes otherwise. RFC 9659 allows
#: senders 8 MiB, four times as much is for those that do not know it.
ZSTD_WINDOW = 1 << 25


@dataclass(frozen=True, slots=True)
class Body:
    """The JSON text of a request and the files that came with it."""

    json: bytes
    attachments: Attachments


async def read_body(request: Request, limit: int) -> Body:
    """413 over ``limit`` bytes, compressed or not; 415 for an encoding that is not known."""
    raw = await _read(request, limit)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raw = await run_in_threadpool(_decompressed, raw, encoding, limit)
    content_type = request.headers.get("content-type", "")
    # Any other type is read as JSON: clients forget theirs, and nothing else could be meant.
    if not content_type.lower().startswith("multipart/form-data"):
        return Body(raw, {})
    parts = await run_in_threadpool(read_form, raw, content_type)
    if "request" not in parts:
        raise HTTPException(400, "the form has no part named request with the JSON body")
    return Body(parts.pop("request"), parts)


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    # A chunked body declares nothing, and a declaration may be wrong.
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > limit:
            raise _too_large(limit)
    return bytes(chunks)


def _decompressed(raw: bytes, encoding: str, limit: int) -> bytes:
    opener = _OPENERS.get(encoding)
    if opener is None:
        raise HTTPException(415, f"content-encoding {encoding[:40]!r} is not known; use {', '.join(_OPENERS)} or none")
    try:
        with opener(io.BytesIO(raw)) as reader:
            # One byte more than allowed tells a bomb from a body without unpacking it.
            plain = reader.read(limit + 1)
    except (zstandard.ZstdError, OSError, EOFError, zlib.error) as error:
        raise HTTPException(400, f"the body is not {encoding}: {error}") from None
    if len(plain) > limit:
        raise _too_large(limit)
    return plain


def _zstd(raw: BinaryIO) -> BinaryIO:
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(raw, read_across_frames=True)
    return cast(BinaryIO, reader)


def _gzip(raw: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw))


#: typesafe-sdk sends zstd from 1,024 bytes on wherever Python has a module for it.
_OPENERS: dict[str, Callable[[BinaryIO], BinaryIO]] = {"zstd": _zstd, "gzip": _gzip, "x-gzip": _gzip}


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {limit} bytes")
