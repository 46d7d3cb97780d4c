"""Metrics as pure functions of items; every one comes with its count and its 95 % interval.

Questions about one record are not independent, so records, not items, are resampled (the cluster
bootstrap), and Wilson's interval of a rate uses the effective number of items (count over design effect).

A question that got no answer counts as certainty in a wrong option, in every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from quaver.evaluate.statistics import Interval, wilson

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

#: Probabilities below are taken as this in log loss, so that one certain mistake costs 20.7 and not infinity.
FLOOR = 1e-9
#: Enough for two digits of a 95 % end; every group of a report draws as many.
DRAWS = 500
#: As many as are usual (Guo et al. 2017); of equal counts, because most answers are sure and would share one bin.
BINS = 15


@dataclass(frozen=True, slots=True)
class Item:
    """One labelled question of one record. ``probabilities`` are empty when there was no answer.

    ``options`` are ids in request order, ``label`` and the argmax of ``probabilities`` index them.
    """

    record: str
    question: str
    kind: str
    options: tuple[str, ...]
    label: int
    probabilities: tuple[float, ...]

    @property
    def failed(self) -> bool:
        return not self.probabilities

    @property
    def settled(self) -> tuple[float, ...]:
        """``probabilities``, and for a failure certainty in an option that is wrong."""
        if self.probabilities:
            return self.probabilities
        wrong = 1 if self.label == 0 else 0
        return tuple(float(i == wrong) for i in range(max(2, len(self.options))))


@dataclass(frozen=True, slots=True)
class Metric:
    """``n`` items; ``floor`` is what a perfect model would score by chance, where that is not 0."""

    name: str
    value: float
    low: float
    high: float
    n: int
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """Items as arrays of one length: what the metrics are computed from."""

    cluster: Indices  # index of the record
    label_p: Floats  # probability of the right option
    top_p: Floats  # of the most probable option
    right: Floats  # 1 where the most probable option is the right one
    brier: Floats  # noul: (p - y)^2; others: summed over options, 0 to 2
    rps: Floats  # ranked probability score, 0 to 1; meaningful for scores
    expected: Floats  # noul: probability of true; others: expected index
    truth: Floats  # noul: 1 for true; others: index of the right option
    group: Indices  # index of (question, right option); noul: of the right option

    def take(self, rows: Indices) -> Columns:
        return Columns(*(getattr(self, name)[rows] for name in self.__slots__))


Statistic = Callable[[Columns], float]


def columns(items: Sequence[Item]) -> Columns:
    """Arrays of ``items``, which must not be empty."""
    rows = [_row(item) for item in items]
    label_p, top_p, right, brier, rps, expected, truth = np.array([row[:-1] for row in rows], dtype=np.float64).T
    cluster = np.unique([item.record for item in items], return_inverse=True)[1]
    group = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    return Columns(cluster, label_p, top_p, right, brier, rps, expected, truth, group)


def _row(item: Item) -> tuple[float, float, float, float, float, float, float, str]:
    p = np.asarray(item.settled)
    truth = np.zeros_like(p)
    truth[item.label] = 1.0
    best = int(p.argmax())
    brier = float(((p - truth) ** 2).sum())
    steps = np.cumsum(p - truth)[:-1]
    rps = float((steps**2).mean()) if len(steps) else 0.0
    if item.kind == "noul":
        return p[item.label], p.max(), best == item.label, brier / 2, rps, p[0], truth[0], f"{item.label}"
    expected = float(np.arange(len(p)) @ p)
    group = f"{item.question}\n{item.label}"
    return p[item.label], p.max(), best == item.label, brier, rps, expected, float(item.label), group


def accuracy(c: Columns) -> float:
    return float(c.right.mean())


def balanced_accuracy(c: Columns) -> float:
    """Mean over the labels that occur of the share that was right among them."""
    hits, counts = np.bincount(c.group, c.right), np.bincount(c.group)
    return float((hits[counts > 0] / counts[counts > 0]).mean())


def auroc(c: Columns) -> float:
    """P(a true one got more probability of true than a false one), ties half. NaN with one class only."""
    positives = c.truth > 0.5
    n1, n0 = int(positives.sum()), int((~positives).sum())
    if n1 == 0 or n0 == 0:
        return float("nan")
    ranks = stats.rankdata(c.expected)
    return float((ranks[positives].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def log_loss(c: Columns) -> float:
    """Mean -ln of the right option's probability, in nats."""
    return float(-np.log(np.maximum(c.label_p, FLOOR)).mean())


def brier(c: Columns) -> float:
    return float(c.brier.mean())


def ranked_probability(c: Columns) -> float:
    return float(c.rps.mean())


def spearman(c: Columns) -> float:
    """Rank correlation of expected and right level. NaN when either is constant."""
    if np.ptp(c.expected) == 0 or np.ptp(c.truth) == 0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(c.expected), stats.rankdata(c.truth))[0, 1])


def calibration_error(c: Columns) -> float:
    """Expected calibration error of the top option: up to 15 bins of equal counts, weighted mean gap."""
    return _gap(np.sort(c.top_p), c.right[np.argsort(c.top_p, kind="stable")])


def calibration_floor(c: Columns, rng: np.random.Generator) -> float:
    """What ``calibration_error`` would be on average if the confidences were exactly right: its noise floor."""
    sure = np.sort(c.top_p)
    return float(np.mean([_gap(sure, (rng.random(len(sure)) < sure).astype(float)) for _ in range(200)]))


def _gap(sure: Floats, right: Floats) -> float:
    bins = min(BINS, max(1, len(sure) // 5))
    edges = np.linspace(0, len(sure), bins + 1).astype(int)[:-1]
    edges = np.unique(np.searchsorted(sure, sure[edges]))  # equal confidences stay in one bin
    return float(np.abs(np.add.reduceat(sure - right, edges)).sum() / len(sure))


def risk_coverage(c: Columns) -> tuple[Floats, Floats]:
    """Coverage (k/n) and the error rate among the k most confident, k = 1..n; ties share their mean error."""
    order = np.argsort(-c.top_p, kind="stable")
    sure, wrong = c.top_p[order], 1.0 - c.right[order]
    _, tie = np.unique(-sure, return_inverse=True)
    wrong = (np.bincount(tie, wrong) / np.bincount(tie))[tie]
    count = np.arange(1, len(sure) + 1)
    return count / len(sure), np.cumsum(wrong) / count


def aurc(c: Columns) -> float:
    """Area under the risk-coverage curve (Geifman and El-Yaniv 2017): 0 is best, a constant guess scores its error."""
    return float(risk_coverage(c)[1].mean())


def coverage_at(risk: float) -> Statistic:
    """The metric: largest share that can be answered, most confident first, with at most ``risk`` wrong among them."""

    def coverage(c: Columns) -> float:
        share, error = risk_coverage(c)
        fine = np.flatnonzero(error <= risk + 1e-12)
        return float(share[fine[-1]]) if len(fine) else 0.0

    return coverage


def rate_interval(values: Floats, cluster: Indices) -> Interval:
    """Wilson's interval of a mean of zeros and ones, for values that share records."""
    n, p = len(values), float(values.mean())
    sizes = np.bincount(cluster)
    records = int((sizes > 0).sum())
    if 0 < p < 1 and records > 1:
        # Kish's design effect, the variance of the clustered mean over that of as many independent items.
        spread = np.bincount(cluster, values - p)
        design = (spread**2).sum() * records / (records - 1) / (n * p * (1 - p))
        effective = min(n, max(1, floor(n / design))) if records < n else n
    else:
        # All right or all wrong tell nothing of the correlation within records; at worst a record is one item.
        effective = records
    return Interval(
        wilson(floor(p * effective + 1e-9), effective).low, wilson(ceil(p * effective - 1e-9), effective).high
    )


def bootstrap(metrics: Mapping[str, Statistic], c: Columns, rng: np.random.Generator) -> dict[str, Interval]:
    """Percentile intervals of ``metrics`` over resampled records (Efron and Tibshirani 1993)."""
    records = int(c.cluster.max()) + 1
    rows = np.arange(len(c.cluster))
    draws = np.empty((DRAWS, len(metrics)))
    for draw in draws:
        times = np.bincount(rng.integers(records, size=records), minlength=records)
        drawn = c.take(np.repeat(rows, times[c.cluster]))
        draw[:] = [metric(drawn) for metric in metrics.values()]
    return {
        name: _percentiles(values[~np.isnan(values)], metric(c) if metric is calibration_error else None)
        for (name, metric), values in zip(metrics.items(), draws.T, strict=True)
    }


def _percentiles(draws: Floats, centre: float | None) -> Interval:
    """The middle 95 % of ``draws``, moved to lie around ``centre`` and above 0 where it is given.

    A gap is never negative, so resampling inflates a calibration error; that bias is taken out.
    """
    if not len(draws):
        return Interval(float("nan"), float("nan"))
    low, high = np.percentile(draws, [2.5, 97.5])
    if centre is None:
        return Interval(float(low), float(high))
    bias = float(draws.mean()) - centre
    return Interval(max(0.0, float(low) - bias), float(high) - bias)


#: Name to the metric and the only question type it fits, None for all, in the order of reports.
METRICS: dict[str, tuple[Statistic, str | None]] = {
    "balanced_accuracy": (balanced_accuracy, None),
    "auroc": (auroc, "noul"),
    "log_loss": (log_loss, None),
    "brier": (brier, None),
    "ranked_probability": (ranked_probability, "score"),
    "spearman": (spearman, "score"),
    "ece": (calibration_error, None),
    "aurc": (aurc, None),
}


def measure(items: Sequence[Item], risk: float = 0.05, seed: int = 0) -> list[Metric]:
    """All metrics that fit ``items``, which must not be empty; ``risk`` is that of ``coverage_at_...``."""
    c, rng, n = columns(items), np.random.default_rng(seed), len(items)
    kinds = {item.kind for item in items}
    metrics = {name: metric for name, (metric, kind) in METRICS.items() if kind is None or kinds == {kind}}
    metrics[f"coverage_at_{risk:g}"] = coverage_at(risk)
    intervals, noise = bootstrap(metrics, c, rng), calibration_floor(c, rng)
    return [
        Metric("accuracy", accuracy(c), *rate_interval(c.right, c.cluster), n),
        *(
            Metric(name, metric(c), *intervals[name], n, noise if name == "ece" else None)
            for name, metric in metrics.items()
        ),
    ]
