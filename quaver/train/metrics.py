"""Measures of held-out quality, each with its number of items and a 95 % interval.

Intervals are bootstrap percentiles over items, drawn with a fixed seed, so that two runs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64]

DRAWS = 1000
BINS = 15


@dataclass(frozen=True, slots=True)
class Measured:
    """A value between ``low`` and ``high`` from ``n`` items."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def measure(metric: Callable[..., float], *columns: Sequence[float] | Numbers) -> Measured:
    """``metric`` of columns of equal length, with the interval of resampled rows."""
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    n = len(arrays[0])
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        rows = rng.integers(0, n, n)
        drawn.append(metric(*(array[rows] for array in arrays)))
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Measured(metric(*arrays), float(low), float(high), n)


def accuracy(right: Numbers) -> float:
    """Share of ones."""
    return float(right.mean())


def auc(score: Numbers, label: Numbers) -> float:
    """Chance that a positive item scores above a negative one, ties counting half; NaN with one class alone."""
    positive = label > 0.5
    p, n = int(positive.sum()), int((~positive).sum())
    if not p or not n:
        return float("nan")
    ranks = stats.rankdata(score)
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * n))


def spearman(score: Numbers, wanted: Numbers) -> float:
    """Rank correlation."""
    return float(np.corrcoef(stats.rankdata(score), stats.rankdata(wanted))[0, 1])


def ece(confidence: Numbers, right: Numbers) -> float:
    """Mean distance of confidence and accuracy over 15 equal-width bins, weighted by their items.

    Guo et al. 2017 (arXiv 1706.04599). ``right`` may be a share, when several people answered.
    """
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        (inside.sum() / len(place)) * abs(confidence[inside].mean() - right[inside].mean())
        for inside in (place == b for b in range(BINS))
        if inside.any()
    ]
    return float(sum(gaps))
