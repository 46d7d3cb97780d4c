"""Films, frames and soundtrack, against the reference's numbers."""

import hashlib
from io import BytesIO
from typing import Any

import av
import numpy as np
import pytest
from hostile.recording import film, tone
from vectors import OMNI, cases

from quaver.errors import BadMedia
from quaver.media import MediaLimits, read_film

FILMS = {
    expected["source"]: expected
    for case in cases("clef-omni-tiny/cases")
    for expected in (case.get("media") or {}).get("videos", ())
}


@pytest.mark.parametrize("source", FILMS)
def test_frames_and_sound_are_those_of_the_reference(source: str) -> None:
    expected, read = FILMS[source], read_film(OMNI / source)
    assert list(read.frames.shape) == expected["frames_shape"]
    assert hashlib.sha256(read.frames.tobytes()).hexdigest() == expected["frames_rgb_sha256"]
    if expected["track_samples"] is None:
        assert read.soundtrack is None
    else:
        assert read.soundtrack is not None
        assert read.soundtrack.size == expected["track_samples"]
        assert np.abs(read.soundtrack).sum(dtype=np.float64) == pytest.approx(expected["track_abs_sum"], abs=1e-4)


def test_films_with_and_without_sound_were_compared() -> None:
    assert {expected["track_samples"] is None for expected in FILMS.values()} == {True, False}


def times(data: bytes) -> list[float]:
    with av.open(BytesIO(data)) as container:
        return [frame.time for frame in container.decode(video=0) if frame.time is not None]


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 1, "frames": 5},
        {"rate": 2, "frames": 5},
        {"rate": 30, "frames": 70},
        {"rate": 7, "frames": 20},
        {"container": "webm", "codec": "libvpx", "rate": 25, "frames": 40},
        {"container": "mpegts", "rate": 10, "frames": 30},
        {"rate": 10, "times": [0, 3, 4, 9, 30, 31], "frames": 6},
    ],
)
def test_a_frame_is_taken_when_its_half_second_is_reached(options: dict[str, Any]) -> None:
    data = film(**options)
    taken: list[int] = []
    for number, time in enumerate(times(data)):
        if time >= len(taken) / 2 - 1e-6:
            taken.append(number)
    frames = read_film(data).frames
    with av.open(BytesIO(data)) as container:
        everything = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    expected = [everything[number] for number in taken]
    expected += expected[-1:] * (len(expected) % 2)
    assert np.array_equal(frames, np.stack(expected))


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        ((64, 48), (64, 48)),
        ((512, 512), (512, 512)),
        ((514, 512), (512, 512)),
        ((1024, 64), (1024, 64)),
        ((1280, 720), (682, 384)),
    ],
)
def test_large_frames_are_shrunk(size: tuple[int, int], kept: tuple[int, int]) -> None:
    assert read_film(film(frames=1, size=size)).frames.shape == (2, kept[1], kept[0], 3)


def test_limits() -> None:
    heard = film(frames=12, heard=tone(3))
    for limits, reason in [
        (MediaLimits(video_bytes=100), "bytes and at most 100 are allowed"),
        (MediaLimits(video_seconds=2), "longer than the 2 seconds"),
        (MediaLimits(video_pixels=3_000), "64x48 pixels; at most 3000 in all"),
        (MediaLimits(video_side=60), "64x48 pixels; at most 60 on a side"),
        (MediaLimits(video_decoded_bytes=3 * 64 * 48 * 3), r"4 frames of 64x48 take 36864 bytes and at most 27648"),
    ]:
        with pytest.raises(BadMedia, match=reason):
            read_film(heard, limits)
    with pytest.raises(BadMedia, match="sound is longer than the 3 seconds"):
        read_film(film(frames=2, heard=tone(5)), MediaLimits(video_seconds=3))
