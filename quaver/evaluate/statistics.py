"""Statistics for few cases, few runs and many arms: intervals, exact tests, multiplicity, posteriors.

Two questions must not be mixed. A claim about *these* cases permutes runs within each case
(:func:`stratified_permutation`); a claim about *new* cases treats the case as the unit
(:func:`sign_flip`, :func:`mcnemar`), and with few cases it cannot be made however many runs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, hypot
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

#: Distinct sums that the exact permutation may hold before it turns to Monte Carlo.
EXACT_SUMS = 50_000
#: Cases up to which all sign patterns are tried.
EXACT_CASES = 16
#: Sums this close are the same sum; outcomes are rates, counts or losses of order one.
_DIGITS = 9
_QUANTILES = 4096


class Interval(NamedTuple):
    """``low <= high``, in the unit of what is estimated."""

    low: float
    high: float

    def within(self, margin: float) -> bool:
        """Whether all of the interval lies in ``[-margin, margin]``."""
        return -margin <= self.low and self.high <= margin


@dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation test: the two-sided ``p``, and whether it is ``exact`` or from seeded ``resamples``."""

    difference: float
    p: float
    exact: bool
    resamples: int = 0

    def __float__(self) -> float:
        return self.p


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a rate (Wilson 1927). No runs, no knowledge: (0, 1)."""
    _check(successes, n)
    if n == 0:
        return Interval(0.0, 1.0)
    found = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def newcombe(k1: int, n1: int, k2: int, n2: int, confidence: float = 0.95) -> Interval:
    """Interval of ``k1/n1 - k2/n2`` from two Wilson intervals (Newcombe 1998, method 10)."""
    first, second = wilson(k1, n1, confidence), wilson(k2, n2, confidence)
    if n1 == 0 or n2 == 0:
        return Interval(-1.0, 1.0)
    p1, p2 = k1 / n1, k2 / n2
    low = p1 - p2 - hypot(p1 - first.low, second.high - p2)
    high = p1 - p2 + hypot(first.high - p1, p2 - second.low)
    return Interval(max(-1.0, low), min(1.0, high))


def fisher(k1: int, n1: int, k2: int, n2: int) -> float:
    """Two-sided p of Fisher's exact test that two rates are equal (Fisher 1935)."""
    _check(k1, n1)
    _check(k2, n2)
    return float(stats.fisher_exact(np.array([[k1, n1 - k1], [k2, n2 - k2]])).pvalue)


def stratified_permutation(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = 20_000
) -> Permutation:
    """Exact test that two arms are alike on these cases, permuting runs within each case.

    ``a[i]`` and ``b[i]`` hold the outcomes of case ``i`` (0 and 1, or any numbers); the two may differ
    in length. The statistic is the sum of ``a``'s outcomes; p counts the sums at least as far from their
    expectation as the one seen. For 0/1 outcomes this is the exact Cochran-Mantel-Haenszel test
    (Mantel & Haenszel 1959; Agresti 2002, 6.3). ``difference`` is the mean over cases of mean(a) - mean(b).
    With too many distinct sums it draws ``resamples`` permutations from ``seed`` instead and says so.
    """
    strata = [(list(x), list(y)) for x, y in zip(a, b, strict=True) if len(x) and len(y)]
    if not strata:
        return Permutation(0.0, 1.0, exact=True)
    difference = float(np.mean([np.mean(x) - np.mean(y) for x, y in strata]))
    expected = sum(sum(x + y) * len(x) / len(x + y) for x, y in strata)
    distance = round(abs(sum(sum(x) for x, _ in strata) - expected), _DIGITS)
    ways = _sums(strata)
    if ways is not None:
        extreme = sum(w for total, w in ways.items() if round(abs(total - expected), _DIGITS) >= distance)
        return Permutation(difference, extreme / ways.total(), exact=True)
    # Plus one above and below: the sample seen is one of the permutations (Phipson & Smyth 2010), so p is never 0.
    drawn = np.round(np.abs(_draw(strata, seed, resamples) - expected), _DIGITS)
    p = (1 + int((drawn >= distance).sum())) / (1 + resamples)
    return Permutation(difference, p, exact=False, resamples=resamples)


def sign_flip(differences: Sequence[float], *, seed: int = 0, resamples: int = 20_000) -> Permutation:
    """Case-level test that the mean of paired ``differences``, one per case, is zero (Fisher 1935, sign flips).

    All 2**n patterns up to ``EXACT_CASES`` cases, seeded Monte Carlo above. p is never under ``2 / 2**n``.
    """
    d = np.round(np.asarray(differences, dtype=float), _DIGITS)
    if d.size == 0 or not d.any():
        return Permutation(0.0, 1.0, exact=True)
    exact = d.size <= EXACT_CASES
    found = stats.permutation_test(
        (d,),
        lambda x, axis=-1: np.mean(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**d.size if exact else resamples,
        rng=np.random.default_rng(seed),
    )
    p = min(1.0, float(found.pvalue))
    return Permutation(float(d.mean()), p, exact, 0 if exact else resamples)


def smallest_sign_flip_p(cases: int) -> float:
    """The least two-sided p that any outcome on ``cases`` cases can reach: ``2 / 2**cases``."""
    return min(1.0, 2.0 ** (1 - cases))


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided McNemar test on discordant pairs (McNemar 1947): a right and b wrong, and the reverse."""
    _check(only_a, only_a + only_b)
    n = only_a + only_b
    return float(stats.binomtest(only_a, n).pvalue) if n else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def beta_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Equal-tailed interval of the Beta(1/2, 1/2) posterior of a rate (Jeffreys); 0 and 1 at the edges."""
    _check(successes, n)
    low, high = stats.beta.interval(confidence, successes + 0.5, n - successes + 0.5)
    return Interval(0.0 if successes == 0 else float(low), 1.0 if successes == n else float(high))


def beta_greater(k1: int, n1: int, k2: int, n2: int) -> float:
    """Posterior probability that the first rate is the greater, Beta(1/2, 1/2) priors; within 2e-4."""
    _check(k1, n1)
    _check(k2, n2)
    first = stats.beta(k1 + 0.5, n1 - k1 + 0.5)
    second = stats.beta(k2 + 0.5, n2 - k2 + 0.5)
    # Over quantiles the integrand is bounded and monotone; over rates the Jeffreys densities have poles.
    quantiles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return float(second.cdf(first.ppf(quantiles)).mean())


def _check(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is not a count of successes")


def _sums(strata: Sequence[tuple[list[float], list[float]]]) -> Counter[float] | None:
    """How many permutations give each sum of the first arm's outcomes; None when there are too many sums."""
    total: Counter[float] = Counter({0.0: 1})
    for x, y in strata:
        inside = _subset_sums(x + y, len(x))
        if inside is None or len(total) * len(inside) > EXACT_SUMS * 20:
            return None
        merged: Counter[float] = Counter()
        for left, ways in total.items():
            for right, more in inside.items():
                merged[round(left + right, _DIGITS)] += ways * more
        if len(merged) > EXACT_SUMS:
            return None
        total = merged
    return total


def _subset_sums(values: Sequence[float], chosen: int) -> Counter[float] | None:
    """How many ways to choose ``chosen`` of ``values`` give each sum; None when there are too many sums."""
    tables: list[Counter[float]] = [Counter() for _ in range(chosen + 1)]
    tables[0][0.0] = 1
    for value in values:
        for size in range(chosen, 0, -1):
            for subtotal, ways in tables[size - 1].items():
                tables[size][round(subtotal + value, _DIGITS)] += ways
        if sum(map(len, tables)) > EXACT_SUMS:
            return None
    assert tables[chosen].total() == comb(len(values), chosen)
    return tables[chosen]


def _draw(strata: Sequence[tuple[list[float], list[float]]], seed: int, resamples: int) -> NDArray[np.float64]:
    """Sums of the first arm's outcomes under ``resamples`` random permutations within cases."""
    rng = np.random.default_rng(seed)
    total = np.zeros(resamples)
    for x, y in strata:
        pool = np.tile(np.asarray(x + y, dtype=float), (resamples, 1))
        total += rng.permuted(pool, axis=1)[:, : len(x)].sum(axis=1)
    return total
