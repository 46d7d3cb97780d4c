"""Measures against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from quaver.train import metrics


def test_auc_counts_ties_half() -> None:
    assert metrics.auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(3.5 / 4)


def test_spearman_of_a_monotone_curve_is_one() -> None:
    x = np.linspace(0, 1, 9)
    assert metrics.spearman(x, np.exp(5 * x)) == pytest.approx(1)
    assert metrics.spearman(-x, x) == pytest.approx(-1)


def test_ece_is_the_mean_gap() -> None:
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.55, 0.55])
    right = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    assert metrics.ece(confidence, right) == pytest.approx(4 / 6 * 0.4 + 2 / 6 * 0.05)


def test_an_interval_holds_its_value_and_repeats() -> None:
    right = (np.arange(100) % 4 > 0).astype(float)
    first, second = (metrics.measure(metrics.accuracy, right) for _ in range(2))
    assert first == second
    assert first.low < first.value == 0.75 < first.high
    assert first.n == 100
