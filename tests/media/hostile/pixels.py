"""Encoders for pictures: Pillow's, and PNG by hand for what Pillow does not write."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 48, 32
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def photo(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Noise over a slope: nothing compresses it away, so that cuts hit the data."""
    slope = np.linspace(0, 120, width * height * 3).reshape(height, width, 3)
    noise = np.random.default_rng(7).integers(0, 120, slope.shape)
    return Image.fromarray((slope + noise).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes, checksum: int | None = None) -> bytes:
    crc = zlib.crc32(kind + body) if checksum is None else checksum
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)


def header(width: int, height: int, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def png(*chunks: bytes) -> bytes:
    return SIGNATURE + b"".join(chunks) + chunk(b"IEND", b"")


def rows(pixels: np.ndarray, depth: int = 8) -> bytes:
    """Unfiltered scan lines, compressed."""
    kind = ">u2" if depth == 16 else np.uint8
    return chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.astype(kind).tobytes() for row in pixels)))


def interlaced(pixels: np.ndarray) -> bytes:
    """The seven passes of Adam7."""
    starts = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    passes = (pixels[top::down, left::right] for top, left, down, right in starts)
    lines = b"".join(b"\0" + row.tobytes() for part in passes if part.size for row in part)
    return chunk(b"IDAT", zlib.compress(lines))


def exif(orientation: int) -> Image.Exif:
    data = Image.Exif()
    data[0x0112] = orientation
    return data
