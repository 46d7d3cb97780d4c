"""Pictures: every kind that must be read, and files that only look like one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import chain

import numpy as np
from PIL import Image

from hostile.case import Case, cuts
from hostile.pixels import HEIGHT, SIGNATURE, WIDTH, chunk, encoded, exif, header, interlaced, photo, png, rows

SIZE = (HEIGHT, WIDTH)
NO_IMAGE = "cannot be decoded"
PIXELS = "in all are allowed"
ROTATED = {5, 6, 7, 8}


def cases() -> Iterator[Case]:
    yield from chain(_modes(), _turned(), _animated(), _embellished(), _bombs(), _broken_png(), _broken(), _others())


def _modes() -> Iterator[Case]:
    """Formats and pixel types."""
    rgb = photo()
    pixels = np.asarray(rgb)
    alpha = rgb.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(rgb.size))
    palette = rgb.quantize(16)
    for name, image, kind, options in [
        ("png-rgb", rgb, "PNG", {}),
        ("png-rgba", alpha, "PNG", {}),
        ("png-grey", rgb.convert("L"), "PNG", {}),
        ("png-grey-alpha", alpha.convert("LA"), "PNG", {}),
        ("png-bilevel", rgb.convert("1"), "PNG", {}),
        ("png-palette", palette, "PNG", {}),
        ("png-palette-transparent", palette, "PNG", {"transparency": 3}),
        ("png-palette-alphas", palette, "PNG", {"transparency": bytes(range(16))}),
        ("png-palette-4-bits", palette, "PNG", {"bits": 4}),
        ("png-grey-transparent", rgb.convert("L"), "PNG", {"transparency": 100}),
        ("png-rgb-transparent", rgb, "PNG", {"transparency": (1, 2, 3)}),
        ("png-grey-16", Image.fromarray(pixels[..., 0].astype(np.uint16) * 257), "PNG", {}),
        ("jpeg", rgb, "JPEG", {}),
        ("jpeg-progressive", rgb, "JPEG", {"progressive": True}),
        ("jpeg-grey", rgb.convert("L"), "JPEG", {}),
        ("jpeg-cmyk", rgb.convert("CMYK"), "JPEG", {}),
        ("jpeg-444", rgb, "JPEG", {"subsampling": 0}),
        ("jpeg-worst", rgb, "JPEG", {"quality": 1}),
        ("jpeg-restarts", rgb, "JPEG", {"restart_marker_blocks": 1}),
        ("webp-lossy", rgb, "WEBP", {}),
        ("webp-lossless", rgb, "WEBP", {"lossless": True}),
        ("webp-alpha", alpha, "WEBP", {}),
        ("gif", palette, "GIF", {}),
        ("gif-transparent", palette, "GIF", {"transparency": 2}),
        ("gif-plain-order", palette, "GIF", {"interlace": 0}),
        ("bmp-24", rgb, "BMP", {}),
        ("bmp-32", alpha, "BMP", {}),
        ("bmp-8", palette, "BMP", {}),
        ("bmp-1", rgb.convert("1"), "BMP", {}),
        ("tiff", rgb, "TIFF", {}),
        ("tiff-lzw", rgb, "TIFF", {"compression": "tiff_lzw"}),
        ("tiff-deflate", rgb, "TIFF", {"compression": "tiff_adobe_deflate"}),
        ("tiff-group4", rgb.convert("1"), "TIFF", {"compression": "group4"}),
        ("tiff-cmyk", rgb.convert("CMYK"), "TIFF", {}),
        ("tiff-float", rgb.convert("F"), "TIFF", {}),
        ("tiff-grey-16", Image.fromarray(pixels[..., 0].astype(np.uint16) * 257), "TIFF", {}),
    ]:
        yield Case(name, "image", encoded(image, kind, **options), SIZE)
    deep = pixels.astype(np.uint16) * 257
    yield Case("png-rgb-16", "image", png(header(*rgb.size, depth=16), rows(deep, 16)), SIZE)
    yield Case("png-interlaced", "image", png(header(*rgb.size, interlaced=1), interlaced(pixels)), SIZE)
    yield Case("bmp-top-down", "image", _bmp_upside_down(encoded(rgb, "BMP")), SIZE)
    yield Case("png-1x1", "image", encoded(photo(1, 1), "PNG"), (1, 1))
    yield Case("jpeg-1x1", "image", encoded(photo(1, 1), "JPEG"), (1, 1))
    yield Case("gif-1x1", "image", encoded(photo(1, 1).quantize(2), "GIF"), (1, 1))
    yield Case("png-3-high", "image", encoded(photo(40, 3), "PNG"), (3, 40))
    yield Case("png-longest-side", "image", encoded(Image.new("1", (32_768, 1)), "PNG"), (1, 32_768))


def _bmp_upside_down(data: bytes) -> bytes:
    return data[:22] + struct.pack("<i", -HEIGHT) + data[26:]


def _turned() -> Iterator[Case]:
    """EXIF orientations, those that do not exist, and EXIF data that are none."""
    for orientation in (*range(10), 65_535):
        size = SIZE[::-1] if orientation in ROTATED else SIZE
        for kind in ("JPEG", "PNG", "WEBP"):
            data = encoded(photo(), kind, exif=exif(orientation))
            yield Case(f"{kind.lower()}-orientation-{orientation}", "image", data, size)
    turned = exif(6).tobytes()
    for name, data in {
        "cut": turned[:-9],
        "endless": turned[:10] + b"\xff" * 60_000,
        "garbage": b"Exif\0\0" + bytes(range(256)) * 200,
        "loop": b"Exif\0\0MM\0\x2a\0\0\0\x08\0\0\0\0\0\x08",
        "empty": b"Exif\0\0",
    }.items():
        yield Case(f"jpeg-exif-{name}", "image", encoded(photo(), "JPEG", exif=data), SIZE)
    large = exif(6)
    large[0x010E] = "words " * 9_000
    yield Case("jpeg-exif-large", "image", encoded(photo(), "JPEG", exif=large), SIZE[::-1])


def _animated() -> Iterator[Case]:
    """Only the first picture counts."""
    frames = [photo().rotate(90 * turn) for turn in range(1, 4)]
    for kind in ("GIF", "WEBP", "PNG", "TIFF"):
        data = encoded(photo(), kind, save_all=True, append_images=frames, duration=50)
        yield Case(f"{kind.lower()}-animated", "image", data, SIZE)
    yield Case("jpeg-two-pictures", "image", encoded(photo(), "MPO", save_all=True, append_images=frames), SIZE)
    small = encoded(photo().quantize(16), "GIF")
    screen = small[:6] + struct.pack("<HH", 100, 90) + small[10:]
    yield Case("gif-frame-below-screen", "image", screen, (90, 100))


def _embellished() -> Iterator[Case]:
    """Good pictures with something beside them."""
    jpeg, plain = encoded(photo(), "JPEG"), encoded(photo(), "PNG")
    gif = encoded(photo().quantize(16), "GIF")
    profile = bytes(4_000)
    for name, data in {
        "jpeg-comment": encoded(photo(), "JPEG", comment=b"x" * 65_000),
        "jpeg-garbage-behind": jpeg + bytes(200_000),
        "jpeg-zip-behind": jpeg + b"PK\x03\x04" + bytes(26) + b"PK\x05\x06" + bytes(18),
        "jpeg-html-behind": jpeg + b"<html><script>alert(1)</script></html>",
        "jpeg-profile": encoded(photo(), "JPEG", icc_profile=profile),
        "png-profile": encoded(photo(), "PNG", icc_profile=profile),
        "webp-profile": encoded(photo(), "WEBP", icc_profile=profile),
        "png-garbage-behind": plain + bytes(range(256)) * 100,
        "png-unknown-chunk": png(header(*photo().size), chunk(b"quAv", b"?" * 999), rows(np.asarray(photo()))),
        "png-physical-size": encoded(photo(), "PNG", dpi=(1e6, 1e-6)),
        "png-too-much-data": png(header(1, 1), chunk(b"IDAT", zlib.compress(bytes(20_000_000)))),
        "gif-script-behind": gif + b"*/=1;alert(1)//",
    }.items():
        yield Case(name, "image", data, (1, 1) if name == "png-too-much-data" else SIZE)


def _bombs() -> Iterator[Case]:
    """Small files that would be large pictures."""
    nothing = chunk(b"IDAT", zlib.compress(bytes(1000)))
    for side in (7_072, 60_000, 2**31 - 1):
        yield Case(f"png-{side}-square", "image", png(header(side, side, 1, 0), nothing), PIXELS)
    yield Case("png-too-long-side", "image", encoded(Image.new("1", (32_769, 1)), "PNG"), "on a side are allowed")
    gif = encoded(photo().quantize(16), "GIF")
    yield Case("gif-large-screen", "image", gif[:6] + b"\xff\xff\xff\xff" + gif[10:], PIXELS)
    jpeg = encoded(photo(), "JPEG")
    start = jpeg.index(b"\xff\xc0") + 5
    yield Case("jpeg-large-header", "image", jpeg[:start] + b"\xff\xdc\xff\xdc" + jpeg[start + 4 :], PIXELS)
    bmp = encoded(photo(), "BMP")
    yield Case("bmp-large-header", "image", bmp[:18] + struct.pack("<ii", 2**20, 2**20) + bmp[26:], PIXELS)
    canvas = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + (16_382).to_bytes(3, "little") * 2
    webp = encoded(photo(), "WEBP")[12:]
    body = b"WEBP" + canvas + webp
    yield Case("webp-large-canvas", "image", b"RIFF" + struct.pack("<I", len(body)) + body, f"{PIXELS}|{NO_IMAGE}")
    tiff = bytearray(encoded(photo(), "TIFF"))
    place = struct.unpack("<I", tiff[4:8])[0] + 2
    for entry in range(place, place + 24, 12):
        tiff[entry + 2 : entry + 12] = struct.pack("<HII", 4, 1, 100_000)
    yield Case("tiff-large-header", "image", bytes(tiff), PIXELS)
    text = zlib.compress(bytes(20_000_000), 9)
    picture = (header(*photo().size), rows(np.asarray(photo())))
    yield Case("png-text-bomb", "image", png(picture[0], chunk(b"zTXt", b"k\0\0" + text), picture[1]), NO_IMAGE)
    yield Case("png-itext-bomb", "image", png(picture[0], chunk(b"iTXt", b"k\0\1\0\0\0" + text), picture[1]), NO_IMAGE)
    many = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1_000_000), 9)) * 100
    yield Case("png-many-texts", "image", png(picture[0], many, picture[1]), NO_IMAGE)
    yield Case("png-profile-bomb", "image", png(picture[0], chunk(b"iCCP", b"k\0\0" + text), picture[1]), NO_IMAGE)


def _broken_png() -> Iterator[Case]:
    size, lines = photo().size, rows(np.asarray(photo()))
    indexed = np.asarray(photo().quantize(16))
    body = zlib.compress(b"".join(b"\x09" + row.tobytes() for row in np.asarray(photo())))
    for name, data in {
        "header-checksum": png(chunk(b"IHDR", header(*size)[8:-4], 1), lines),
        "no-data": png(header(*size)),
        "empty-data": png(header(*size), chunk(b"IDAT", b"")),
        "data-not-deflate": png(header(*size), chunk(b"IDAT", b"not compressed at all")),
        "unknown-filter": png(header(*size), chunk(b"IDAT", body)),
        "no-header": png(lines),
        "data-before-header": png(lines, header(*size)),
        "width-zero": png(header(0, 5), lines),
        "height-zero": png(header(5, 0), lines),
        "depth-three": png(header(*size, depth=3), lines),
        "colour-nine": png(header(*size, colour=9), lines),
        "length-lies": SIGNATURE + struct.pack(">I", 2**31 - 1) + header(*size)[4:] + lines,
        "signature-only": SIGNATURE,
        "line-ends-changed": png(header(*size), lines).replace(b"\r\n", b"\n"),
    }.items():
        yield Case(f"png-{name}", "image", data, NO_IMAGE)
    # Pillow, and so the reference, forgives these.
    yield Case("png-data-checksum", "image", png(header(*size), lines[:-4] + b"\0\0\0\1"), SIZE)
    yield Case("png-half-the-rows", "image", png(header(*size), rows(np.asarray(photo())[: HEIGHT // 2])), SIZE)
    yield Case("png-no-end", "image", SIGNATURE + header(*size) + lines, SIZE)
    yield Case("png-no-palette", "image", png(header(*size, colour=3), rows(indexed)), SIZE)


def _broken() -> Iterator[Case]:
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "TIFF"):
        yield from cuts(kind.lower(), "image", encoded(photo(), kind), NO_IMAGE)
    gif = encoded(photo().quantize(16), "GIF")
    yield from cuts("gif", "image", gif, NO_IMAGE, (0.1, 0.5, 0.9))
    yield Case("gif-no-picture", "image", b"GIF89a\x01\0\x01\0\0\0\0;", NO_IMAGE)
    yield Case("gif-code-size", "image", b"GIF89a\x08\0\x08\0\0\0\0,\0\0\0\0\x08\0\x08\0\0\xff\x01\0\0;", NO_IMAGE)
    jpeg = encoded(photo(), "JPEG")
    yield Case("jpeg-garbage-in-front", "image", b"garbage" + jpeg, NO_IMAGE)
    yield Case("jpeg-no-tables", "image", jpeg.replace(b"\xff\xdb", b"\xff\xfe"), NO_IMAGE)
    yield Case("jpeg-no-size", "image", jpeg.replace(b"\xff\xc0", b"\xff\xfe"), NO_IMAGE)
    yield Case("jpeg-markers-only", "image", b"\xff\xd8" + b"\xff\xd9" * 99, NO_IMAGE)
    yield Case("tiff-loop", "image", b"II*\0\x08\0\0\0\0\0\x08\0\0\0" + bytes(50), NO_IMAGE)
    yield Case("tiff-entries", "image", b"II*\0\x08\0\0\0\xff\xff" + bytes(600_000), NO_IMAGE)
    yield Case("webp-empty", "image", b"RIFF\x04\0\0\0WEBP", NO_IMAGE)
    yield Case("bmp-header-only", "image", encoded(photo(), "BMP")[:54], NO_IMAGE)


def _others() -> Iterator[Case]:
    """Files that are no picture, or one of a format that is not read."""
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>"
    rgb = photo()
    for name, data in {
        "text": b"hello",
        "html": b"<!doctype html><title>no</title>",
        "svg": svg,
        "pdf": b"%PDF-1.7\n1 0 obj<<>>endobj trailer<<>>\n%%EOF",
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run\n",
        "font": b"\0\1\0\0\0\x0c\0\x80\0\3\0\x40OS/2" + bytes(400),
        "program": b"\x7fELF\2\1\1" + bytes(400),
        "zip": b"PK\x03\x04" + bytes(60),
        "gzip": b"\x1f\x8b\x08" + bytes(60),
        "zeros": bytes(65_536),
        "noise": np.random.default_rng(1).bytes(65_536),
        "json": b'{"image": "data:image/png;base64,AAAA"}',
        "ico": encoded(rgb, "ICO"),
        "ppm": encoded(rgb, "PPM"),
        "tga": encoded(rgb, "TGA"),
        "pcx": encoded(rgb, "PCX"),
        "jpeg2000": encoded(rgb, "JPEG2000"),
        "xbm": b"#define a_width 8\n#define a_height 1\nstatic char a_bits[] = {0x01};",
        "sgi": encoded(rgb, "SGI"),
    }.items():
        yield Case(f"no-image-{name}", "image", data, NO_IMAGE)
