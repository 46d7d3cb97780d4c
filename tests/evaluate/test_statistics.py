"""The statistics against scipy, statsmodels, brute force and published tables."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from quaver.evaluate.compare.power import Design, Sprt, detectable, luck_of_the_best, power, runs_needed
from quaver.evaluate.statistics import (
    beta_greater,
    beta_interval,
    fisher,
    holm,
    mcnemar,
    newcombe,
    sign_flip,
    smallest_sign_flip_p,
    stratified_permutation,
    wilson,
)

counts = st.tuples(st.integers(0, 40), st.integers(1, 40)).map(lambda kn: (min(kn), kn[1]))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(4, 5, 0.376, 0.964), (1, 5, 0.036, 0.624), (0, 5, 0, 0.434), (3, 10, 0.108, 0.603), (0, 20, 0, 0.161)],
)
def test_wilson_table(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == pytest.approx((low, high), abs=5e-4)


@given(counts)
@settings(deadline=None)
def test_wilson_is_the_library_interval(kn: tuple[int, int]) -> None:
    assert wilson(*kn) == pytest.approx(proportion_confint(*kn, method="wilson"), abs=1e-9)


def test_no_runs_give_no_knowledge() -> None:
    assert wilson(0, 0) == (0, 1)
    assert newcombe(0, 0, 3, 5) == (-1, 1)
    with pytest.raises(ValueError, match="6 of 5"):
        wilson(6, 5)


# Newcombe 1998, Statistics in Medicine 17:873, table II, method 10.
@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_table(table: tuple[int, int, int, int], low: float, high: float) -> None:
    assert newcombe(*table) == pytest.approx((low, high), abs=5e-5)


@given(counts, counts)
@settings(deadline=None)
def test_newcombe_is_the_library_interval(a: tuple[int, int], b: tuple[int, int]) -> None:
    reference = confint_proportions_2indep(*a, *b, method="newcomb")
    assert newcombe(*a, *b) == pytest.approx(reference, abs=1e-9)
    assert newcombe(*b, *a) == pytest.approx((-reference[1], -reference[0]), abs=1e-9)


def test_fisher_values() -> None:
    assert fisher(4, 5, 1, 5) == pytest.approx(0.2063, abs=1e-4)
    assert fisher(5, 5, 0, 5) == pytest.approx(2 / comb(10, 5))
    assert fisher(4, 5, 0, 20) == pytest.approx(0.0004, abs=5e-5)
    assert fisher(3, 4, 1, 4) == pytest.approx(0.4857, abs=1e-4)  # the lady tasting tea


def test_permutation_of_the_penicillin_rabbits() -> None:
    """Mantel 1963 in Agresti 2002; the exact conditional p is 0.03994."""
    cured = [((0, 6), (0, 5)), ((3, 3), (0, 6)), ((6, 0), (2, 4)), ((5, 1), (6, 0)), ((2, 0), (5, 0))]
    a = [[1] * yes + [0] * no for (yes, no), _ in cured]
    b = [[1] * yes + [0] * no for _, (yes, no) in cured]
    found = stratified_permutation(a, b)
    assert found.exact
    assert found.p == pytest.approx(0.03994, abs=5e-6)


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
@settings(deadline=None)
def test_one_balanced_case_is_fisher(nkk: tuple[int, int, int]) -> None:
    n, k1, k2 = nkk
    found = stratified_permutation([[1] * k1 + [0] * (n - k1)], [[1] * k2 + [0] * (n - k2)])
    assert float(found) == pytest.approx(fisher(k1, n, k2, n))


outcomes = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3)


@given(st.lists(st.tuples(outcomes, outcomes), min_size=1, max_size=3))
@settings(deadline=None)
def test_permutation_is_full_enumeration(strata: list[tuple[list[float], list[float]]]) -> None:
    a, b = [list(x) for x, _ in strata], [list(y) for _, y in strata]
    pools = [x + y for x, y in strata]
    choices = [list(combinations(pool, len(x))) for pool, (x, _) in zip(pools, strata, strict=True)]
    sums = np.array([sum(map(sum, chosen)) for chosen in product(*choices)])
    seen = abs(sum(map(sum, a)) - sums.mean())
    assert stratified_permutation(a, b).p == pytest.approx(float((abs(sums - sums.mean()) >= seen - 1e-9).mean()))


def test_permutation_turns_to_monte_carlo_and_says_so() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.3, 1, (8, 12)).tolist(), rng.normal(0, 1, (8, 12)).tolist()
    found = stratified_permutation(a, b, seed=3)
    assert not found.exact and found.resamples == 20_000
    assert found == stratified_permutation(a, b, seed=3)
    binary = [[float(x > 0) for x in case] for case in a], [[float(x > 0) for x in case] for case in b]
    assert stratified_permutation(*binary).exact
    assert stratified_permutation([], []).p == 1


def test_permutation_keeps_its_level() -> None:
    """Cases of very different difficulty and no effect: at most 5 % of p are under 0.05."""
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(300):
        rates = rng.choice([0.05, 0.5, 0.95], size=6)
        a, b = ((rng.random((6, 4)) < rates[:, None]).astype(float).tolist() for _ in range(2))
        rejected += stratified_permutation(a, b).p <= 0.05
    assert rejected <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5


def test_sign_flip() -> None:
    for cases in (5, 6, 8):
        assert sign_flip([0.4] * cases).p == smallest_sign_flip_p(cases) == 2 / 2**cases
    d = np.random.default_rng(4).normal(0.4, 1, 9)
    flips = np.array(list(product([1, -1], repeat=9)))
    enumerated = (abs((flips * d).sum(1)) >= abs(d.sum()) - 1e-9).mean()
    assert sign_flip(d.tolist()).p == pytest.approx(enumerated)
    many = sign_flip(np.random.default_rng(5).normal(0.2, 1, 60).tolist())
    assert not many.exact and many.resamples > 0
    assert many.p == pytest.approx(stats.ttest_1samp(np.random.default_rng(5).normal(0.2, 1, 60), 0).pvalue, abs=0.02)
    assert sign_flip([]).p == sign_flip([0.0, 0.0]).p == 1


@given(st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None)
def test_mcnemar(only_a: int, only_b: int) -> None:
    expected = reference_mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue if only_a + only_b else 1
    assert mcnemar(only_a, only_b) == pytest.approx(expected)


def test_mcnemar_needs_six_discordant_pairs() -> None:
    assert mcnemar(5, 0) > 0.05 > mcnemar(6, 0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=15))
@settings(deadline=None, max_examples=12)
def test_holm(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_posteriors() -> None:
    assert beta_greater(4, 5, 4, 5) == pytest.approx(0.5, abs=1e-6)
    assert beta_greater(10, 10, 4, 5) == pytest.approx(0.92, abs=5e-3)
    assert beta_greater(4, 5, 1, 5) == pytest.approx(0.97, abs=5e-3)
    assert beta_greater(7, 10, 4, 5) == pytest.approx(0.36, abs=6e-3)
    rng = np.random.default_rng(6)
    drawn = (rng.beta(3.5, 2.5, 400_000) > rng.beta(9.5, 1.5, 400_000)).mean()
    assert beta_greater(3, 5, 9, 10) == pytest.approx(drawn, abs=3e-3)
    assert beta_interval(4, 5) == pytest.approx((0.371, 0.977), abs=5e-4)
    assert beta_interval(0, 20) == pytest.approx((0, 0.117), abs=5e-4)


def test_power_table() -> None:
    """Rates that Fisher's test tells from 0.4 and 0.8 with 80 % power, n runs per arm."""
    expected = {5: (None, None, None, None), 10: (None, 1.0, 0.12, None), 20: (0.03, 0.86, 0.32, None)}
    expected |= {40: (0.11, 0.73, 0.48, 1.0)}
    for n, row in expected.items():
        assert row == tuple(detectable(rate, n, up=up) for rate in (0.4, 0.8) for up in (False, True))
    assert (runs_needed(0.8, 0.2), runs_needed(0.8, 0.2, 0.9)) == (12, 16)
    assert (runs_needed(0.8, 0.4), runs_needed(0.4, 0.1)) == (27, 36)
    assert power(0.8, 0.2, 5) == pytest.approx(0.38, abs=5e-3)


def test_power_counts_what_fisher_rejects() -> None:
    n = 7
    expected = sum(
        stats.binom.pmf(i, n, 0.7) * stats.binom.pmf(j, n, 0.2)
        for i, j in product(range(n + 1), repeat=2)
        if fisher(i, n, j, n) <= 0.05
    )
    assert power(0.7, 0.2, n) == pytest.approx(expected)


def test_a_design_says_what_it_cannot_show() -> None:
    assert "with 5 cases no two-sided p below 0.0625 exists for new cases" in Design(5, 4, 3).warnings()
    assert "no claim about new cases survives Holm" in Design(6, 2, 12).warnings()[0]
    assert Design(20, 2, 3).warnings() == []


def test_the_best_of_many_idle_arms_looks_good() -> None:
    assert luck_of_the_best(13, 10, 0.4, 3) == pytest.approx(0.48, abs=0.01)
    assert luck_of_the_best(13, 5, 0.8, 2) == pytest.approx(0.56, abs=0.01)


def test_sprt_decides_as_fast_as_wald_says() -> None:
    """Mean runs to a decision and error rates, 0.8 against 0.2 and 0.4 against 0.1."""
    rng = np.random.default_rng(8)
    for first, second, low, high in ((0.8, 0.2, 4.3, 5.3), (0.4, 0.1, 10, 14.5)):
        test = Sprt(first, second)
        lengths, wrong = [], 0
        for _ in range(600):
            events = n = 0
            while (decision := test.decide(events, n)) is None:
                n += 1
                events += rng.random() < first
            lengths.append(n)
            wrong += decision == "second"
        assert low <= np.mean(lengths) <= high
        assert wrong <= 600 * 0.05 + 3 * (600 * 0.05 * 0.95) ** 0.5
    with pytest.raises(ValueError, match="two different rates"):
        Sprt(0.4, 0.4)
