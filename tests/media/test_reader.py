"""One reader for all media: the same content is known again by whatever path it comes."""

import base64
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.pixels import encoded, exif, photo
from hostile.recording import film, sound, tone
from PIL import Image

from quaver.errors import BadMedia
from quaver.media import AS_STORED, UPRIGHT, ImageRule, MediaLimits, MediaReader
from quaver.media.decoded import Audio, Film, Video

GOLDEN = Path(__file__).parents[1] / "golden"
PICTURES = sorted({file.name: file for file in GOLDEN.glob("*/media/*.[pjw]*g*")}.values())
READER = MediaReader()


def paths(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    text = base64.b64encode(data).decode()
    return {
        "bytes": data,
        "base64": text,
        "data URL": f"data:application/octet-stream;base64,{text}",
        "Pillow": Image.open(file),
        "Pillow, loaded": Image.open(BytesIO(data)).copy(),
    }


@pytest.mark.parametrize("rule", [UPRIGHT, AS_STORED], ids=["upright", "as stored"])
@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_a_picture_is_the_same_by_every_path(file: Path, rule: ImageRule) -> None:
    digest = READER.image(file, rule).digest
    assert {name: READER.image(source, rule).digest for name, source in paths(file).items()} == dict.fromkeys(
        paths(file), digest
    )


def test_sound_and_film_are_the_same_by_every_path(tmp_path: Path) -> None:
    heard, seen = sound("flac", "flac", tone()), film()
    for data, read in (
        (heard, READER.audio),
        (seen, READER.film),
        (seen, lambda source: READER.video(source, lambda total, _: range(total))),
    ):
        file = tmp_path / "file"
        file.write_bytes(data)
        text = base64.b64encode(data).decode()
        sources = (data, bytearray(data), text, f"data:;base64,{text}", file)
        assert len({read(source).digest for source in sources}) == 1


def test_one_different_pixel_is_another_picture() -> None:
    one = photo()
    other = one.copy()
    other.putpixel((3, 4), (0, 0, 0))
    assert READER.image(one, UPRIGHT).digest != READER.image(other, UPRIGHT).digest


def test_nearly_equal_files_are_different_pictures() -> None:
    digests = {READER.image(encoded(photo(), "JPEG", quality=quality), UPRIGHT).digest for quality in range(80, 90)}
    assert len(digests) == 10


def test_equal_bytes_in_another_shape_are_different_content() -> None:
    flat = np.zeros((2, 8, 3), np.uint8)
    wide = READER.image(Image.fromarray(flat), UPRIGHT)
    tall = READER.image(Image.fromarray(flat.reshape(8, 2, 3)), UPRIGHT)
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    sounds = np.zeros(16, np.float32)
    items = [
        wide.digest,
        tall.digest,
        Film(frames, None).digest,
        Film(frames, sounds).digest,
        Audio(sounds).digest,
        Audio(np.zeros(17, np.float32)).digest,
        Video(frames, (0, 1), 2, 2.0).digest,
        Video(frames, (0, 2), 3, 2.0).digest,
        Video(frames, (0, 1), 2, 4.0).digest,
    ]
    assert len(set(items)) == len(items)
    assert all(len(digest) == 64 and int(digest, 16) for digest in items)


#: Where the corners of an upright picture lie in one that is stored with an orientation: row by row.
CORNERS = {1: "abcd", 2: "badc", 3: "dcba", 4: "cdab", 5: "acbd", 6: "bdac", 7: "dbca", 8: "cadb"}
COLOURS = {"a": (255, 0, 0), "b": (0, 255, 0), "c": (0, 0, 255), "d": (255, 255, 0)}


@pytest.mark.parametrize("orientation", CORNERS)
def test_orientations(orientation: int) -> None:
    stored = np.array([COLOURS[corner] for corner in CORNERS[orientation]], np.uint8).reshape(2, 2, 3)
    data = encoded(Image.fromarray(stored), "PNG", exif=exif(orientation))
    upright = [tuple(pixel) for pixel in READER.image(data, UPRIGHT).pixels.reshape(4, 3).tolist()]
    assert upright == [COLOURS[corner] for corner in "abcd"]
    assert np.array_equal(READER.image(data, AS_STORED).pixels, stored)


def test_grey_of_16_bits() -> None:
    levels = np.array([[0, 255, 256, 32_768, 65_535]], np.uint16)
    data = encoded(Image.fromarray(levels), "PNG")
    assert READER.image(data, UPRIGHT).pixels[0, :, 0].tolist() == [0, 0, 1, 128, 255]
    assert READER.image(data, AS_STORED).pixels[0, :, 0].tolist() == [0, 255, 255, 255, 255]
    with Image.open(BytesIO(data)) as image:
        assert np.array_equal(READER.image(data, AS_STORED).pixels, np.asarray(image.convert("RGB")))


def test_a_damaged_picture_that_was_opened_lazily() -> None:
    cut = encoded(photo(), "PNG")[:1500]
    with pytest.raises(BadMedia, match="cannot be decoded"):
        READER.image(Image.open(BytesIO(cut)), UPRIGHT)


def test_the_item_that_cannot_be_read_is_named() -> None:
    good = photo()
    with pytest.raises(BadMedia, match="images item 1: the image cannot be decoded") as refused:
        READER.each("images", [good, b"no image", b"neither"], lambda source: READER.image(source, UPRIGHT))
    assert refused.value.where == ("images", 1)
    assert len(READER.each("images", [good, good], lambda source: READER.image(source, UPRIGHT))) == 2


def test_the_number_of_items_is_limited_before_any_is_read() -> None:
    reader = MediaReader(MediaLimits(items=2))
    with pytest.raises(BadMedia, match="audio has 3 items; at most 2 are allowed") as refused:
        reader.each("audio", [b"", b"", b""], reader.audio)
    assert refused.value.where == ("audio",)


def test_text_needs_no_library_that_decodes() -> None:
    code = """
import sys
sys.modules["PIL"] = sys.modules["av"] = None
from quaver.errors import BadMedia
from quaver.media import UPRIGHT, MediaReader
reader = MediaReader()
for task, read in (("image", lambda data: reader.image(data, UPRIGHT)), ("film", reader.film), ("audio", reader.audio)):
    try:
        read(b"x")
    except BadMedia as error:
        assert f"{task} cannot be read here" in str(error) and "media extra" in str(error), error
    else:
        raise AssertionError(task)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
