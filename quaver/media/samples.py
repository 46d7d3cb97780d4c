"""Sound that comes as samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from quaver.errors import BadMedia
from quaver.media.decoded import SAMPLE_RATE, Audio
from quaver.media.limits import MediaLimits


def from_samples(samples: Any, limits: MediaLimits) -> Audio:
    """Samples at 16 kHz, one row of numbers. Raises BadMedia for what is not, and for too many."""
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
    check_length(array.size, limits.audio_seconds)
    return Audio(array)


def check_length(samples: int, most_seconds: float) -> None:
    """Raises BadMedia when samples at 16 kHz are longer than that."""
    if samples > most_seconds * SAMPLE_RATE:
        raise BadMedia(f"the sound is longer than the {most_seconds:g} seconds that are allowed; cut it")
