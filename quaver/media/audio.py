"""Sound to samples at 16 kHz."""

from __future__ import annotations

from itertools import chain
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from quaver.errors import BadMedia
from quaver.media.container import audio_stream, opened
from quaver.media.decoded import SAMPLE_RATE, Audio
from quaver.media.limits import MediaLimits


def from_samples(samples: Any, limits: MediaLimits) -> Audio:
    """Samples at 16 kHz, checked."""
    try:
        array = np.array(samples, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMedia(f"audio samples must be numbers: {error}") from error
    if array.ndim != 1:
        raise BadMedia(f"audio samples must be one row at 16 kHz, got an array of shape {array.shape}; mix to mono")
    if not array.size:
        raise BadMedia("the audio has no samples; send at least one")
    if not np.isfinite(array).all():
        raise BadMedia("audio samples must be finite numbers; NaN or infinity was found")
    _check_length(array.size, limits.audio_seconds)
    return Audio(array)


def decode_audio(data: bytes, limits: MediaLimits) -> Audio:
    """The first audio stream of a file, mixed to mono and resampled as Clef-omni does.

    Raises BadMedia for a file without sound, damage, or more of it than is allowed.
    """
    with opened(data, "audio") as container:
        samples = sound_of(container, limits.audio_seconds)
    if samples is None:
        raise BadMedia("the file has no audio stream that can be decoded")
    return Audio(samples)


def sound_of(container: Any, most_seconds: float) -> NDArray[np.float32] | None:
    """The samples of the first audio stream; None without a stream or when it holds none."""
    stream = audio_stream(container)
    if stream is None:
        return None
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    chunks: list[NDArray[np.float32]] = []
    count = 0
    for frame in chain(container.decode(stream), (None,)):
        for resampled in resampler.resample(frame):
            chunks.append(resampled.to_ndarray().reshape(-1).astype(np.float32, copy=False))
            count += chunks[-1].size
        _check_length(count, most_seconds)
    samples = np.concatenate(chunks) if chunks else np.empty(0, np.float32)
    if not np.isfinite(samples).all():
        raise BadMedia("the audio holds samples that are not finite numbers; encode it again")
    return samples if samples.size else None


def _check_length(samples: int, most_seconds: float) -> None:
    if samples > most_seconds * SAMPLE_RATE:
        raise BadMedia(f"the sound is longer than the {most_seconds:g} seconds that are allowed; cut it")
