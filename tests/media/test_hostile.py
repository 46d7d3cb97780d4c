"""Hostile and odd files, through the decoders' processes."""

import re
from collections.abc import Iterator

import pytest
from hostile import CASES, Case

from quaver.errors import BadMedia
from quaver.media import SAMPLE_RATE, UPRIGHT, DecoderPool, MediaLimits, MediaReader

LIMITS = MediaLimits(audio_seconds=20, video_seconds=20, video_frames=1_000)
#: Lossy codecs put a little silence in front or behind.
SECONDS = 0.1


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    pool = DecoderPool(processes=1)
    yield MediaReader(LIMITS, decode=pool)
    pool.close()


def size(reader: MediaReader, case: Case) -> tuple[float, ...]:
    match case.task:
        case "image":
            return reader.image(case.data, UPRIGHT).pixels.shape[:2]
        case "audio":
            return (reader.audio(case.data).samples.size / SAMPLE_RATE,)
        case "film":
            return reader.film(case.data).frames.shape[:3]
        case _:
            return reader.video(case.data, lambda total, _: range(total)).frames.shape[:3]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_read_or_refused(reader: MediaReader, case: Case) -> None:
    if isinstance(case.outcome, str):
        with pytest.raises(BadMedia, match=case.outcome):
            size(reader, case)
    else:
        assert size(reader, case) == pytest.approx(case.outcome, abs=SECONDS if case.task == "audio" else 0)


def test_there_are_many() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 150
    refused = [case for case in CASES if isinstance(case.outcome, str)]
    assert len(refused) >= 100 and len(names) - len(refused) >= 100
    assert not any(re.search(case.outcome, "the file broke its decoder down") for case in refused)
