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
from quaver.media.samples import check_length


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
    # None at the end drains the resampler, which holds back what its filter still needs neighbours for.
    for frame in chain(container.decode(stream), (None,)):
        for resampled in resampler.resample(frame):
            chunks.append(resampled.to_ndarray().reshape(-1).astype(np.float32, copy=False))
            count += chunks[-1].size
        # Counted as it is decoded: the duration in a header is whatever the file's maker wrote there.
        check_length(count, most_seconds)
    samples = np.concatenate(chunks) if chunks else np.empty(0, np.float32)
    if not np.isfinite(samples).all():
        raise BadMedia("the audio holds samples that are not finite numbers; encode it again")
    return samples if samples.size else None
