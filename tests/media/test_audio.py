"""Sound to samples at 16 kHz, against the reference's numbers."""

from io import BytesIO
from typing import Any

import av
import numpy as np
import pytest
from hostile.recording import sound, tone, wav
from vectors import OMNI, cases

from quaver.errors import BadMedia
from quaver.media import SAMPLE_RATE, MediaLimits, read_audio

CLIPS = {
    clip["source"]: (clip, case["request"]["audio"][number])
    for case in cases("clef-omni-tiny/cases")
    for number, clip in enumerate((case.get("media") or {}).get("audio_clips", ()))
    if number < len(case["request"].get("audio", ()))
}


@pytest.mark.parametrize("source", CLIPS)
def test_samples_are_those_of_the_reference(source: str) -> None:
    expected, given = CLIPS[source]
    samples = read_audio(OMNI / given if isinstance(given, str) else given).samples
    assert samples.dtype == np.float32
    assert samples.size == expected["samples"]
    assert samples.sum(dtype=np.float64) == pytest.approx(expected["sum"], abs=1e-6)
    assert np.abs(samples).sum(dtype=np.float64) == pytest.approx(expected["abs_sum"], abs=1e-4)
    assert samples[1000:1008] == pytest.approx(expected["samples_1000_1008"], abs=1e-8)


def test_there_are_clips_of_every_kind() -> None:
    assert {"array"} | {name.rsplit(".")[-1] for name in CLIPS} == {"array", "wav", "mp3", "flac", "ogg", "mp4"}


def test_samples_are_taken_as_they_are() -> None:
    samples = np.linspace(-1, 1, 50, dtype=np.float32)
    for given in (samples, samples.tolist(), tuple(samples.tolist()), samples.astype(np.float64)):
        assert np.array_equal(read_audio(given).samples, samples)
    given = samples.copy()
    audio = read_audio(given)
    given[:] = 0
    assert np.array_equal(audio.samples, samples), "what the caller does later changes nothing"


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([], "no samples"),
        ([[0.0, 1.0]], "one row at 16 kHz"),
        ([0.0, float("nan")], "finite"),
        ([0.0, float("inf")], "finite"),
        (["loud"], "numbers"),
        ([0.1, [0.2]], "numbers"),
        ([10**400], "numbers"),
        (np.zeros(33, np.float32), "longer than the 0.002 seconds"),
    ],
)
def test_samples_that_are_refused(samples: Any, reason: str) -> None:
    with pytest.raises(BadMedia, match=reason):
        read_audio(samples, MediaLimits(audio_seconds=0.002))


def test_channels_are_mixed() -> None:
    left = np.concatenate([tone(), np.zeros_like(tone())])
    mixed = read_audio(wav(left, channels=2)).samples
    alone = read_audio(wav(tone())).samples
    assert mixed == pytest.approx(alone / np.sqrt(2), abs=1e-4), "FFmpeg's matrix keeps the power"


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000, 96_000])
def test_pitch_survives_resampling(rate: int) -> None:
    samples = read_audio(wav(tone(rate=rate), rate)).samples
    loudest = np.abs(np.fft.rfft(samples)).argmax() * SAMPLE_RATE / samples.size
    assert loudest == pytest.approx(300, abs=2)


def test_the_first_of_several_tracks_is_heard() -> None:
    file = BytesIO()
    with av.open(file, "w", format="matroska") as output:
        streams = [output.add_stream("pcm_s16le", rate=16_000, layout="mono") for _ in range(2)]
        for stream, samples in zip(streams, (tone(), np.zeros_like(tone())), strict=True):
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            frame.sample_rate = 16_000
            output.mux(stream.encode(frame))
    assert np.abs(read_audio(file.getvalue()).samples).max() > 0.3


def test_limits() -> None:
    clip = sound("flac", "flac", tone(3))
    with pytest.raises(BadMedia, match="bytes and at most 100 are allowed"):
        read_audio(clip, MediaLimits(audio_bytes=100))
    with pytest.raises(BadMedia, match="longer than the 2 seconds that are allowed"):
        read_audio(clip, MediaLimits(audio_seconds=2))
    assert read_audio(clip, MediaLimits(audio_seconds=3)).samples.size == 3 * SAMPLE_RATE
