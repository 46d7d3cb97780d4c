"""Images: what becomes of rotation and transparency, and what is refused."""

import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quaver.errors import BadMedia
from quaver.media import D1_IMAGE, MediaLimits, read_image

MEDIA = Path(__file__).parents[1] / "golden/clef-flash-tiny/media"


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("file", sorted(MEDIA.glob("*.[pjw]*g*")), ids=lambda file: file.name)
def test_every_golden_image_becomes_rgb(file: Path) -> None:
    image = read_image(file)
    assert image.pixels.dtype == np.uint8 and image.pixels.shape[2] == 3
    assert image.digest == read_image(file.read_bytes()).digest


def test_alpha_is_dropped_and_not_blended() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    assert read_image(encode(image)).pixels[0, 0].tolist() == [10, 20, 30]
    assert read_image(image).pixels[0, 0].tolist() == [10, 20, 30]


def test_a_transparent_palette_colour_keeps_its_colour() -> None:
    image = Image.new("P", (2, 1), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    assert read_image(encode(image, transparency=1)).pixels[0, 0].tolist() == [200, 100, 50]


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (4, 2), "red")
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_image(encode(image, "JPEG", exif=exif)).pixels.shape == (4, 2, 3)


@pytest.mark.parametrize(
    ("size", "shrunk"), [((1024, 1024), (1024, 1024)), ((2000, 1000), (1448, 724)), ((1025, 1024), (1024, 1023))]
)
def test_a_picture_with_more_pixels_than_its_rule_has_is_shrunk(size: tuple[int, int], shrunk: tuple[int, int]) -> None:
    picture = Image.radial_gradient("L").convert("RGB").resize(size)
    for source in (picture, encode(picture)):
        pixels = read_image(source, rule=D1_IMAGE).pixels
        assert np.array_equal(pixels, np.asarray(picture.resize(shrunk, Image.Resampling.BICUBIC)))


@pytest.mark.parametrize("size", [(101, 100), (10_101, 1)])
def test_too_many_pixels(size: tuple[int, int]) -> None:
    data = encode(Image.new("1", size))
    with pytest.raises(BadMedia, match=rf"{size[0]}x{size[1]} pixels; at most 10000"):
        read_image(data, MediaLimits(image_pixels=10_000))


def test_a_bomb_is_refused_by_its_header() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    header = (60_000).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    with pytest.raises(BadMedia, match="pixels"):
        read_image(bomb)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_files_cut_short(kind: str) -> None:
    noise = Image.effect_noise((64, 64), 80).convert("RGB")
    data = encode(noise, kind)
    for length in (20, len(data) // 2, len(data) - 40):
        with pytest.raises(BadMedia, match="cannot be decoded"):
            read_image(data[:length])


@pytest.mark.parametrize(
    "data",
    [b"hello", b"\0" * 1000, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", (MEDIA / "clip3_64x64.mp4")],
)
def test_what_is_no_image(data: object) -> None:
    with pytest.raises(BadMedia, match="cannot be decoded"):
        read_image(data)
