"""Metrics against scikit-learn, scipy and values worked out by hand; intervals against simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from quaver.evaluate.metrics import (
    Item,
    accuracy,
    aurc,
    auroc,
    balanced_accuracy,
    brier,
    calibration_error,
    calibration_floor,
    columns,
    coverage_at,
    log_loss,
    measure,
    ranked_probability,
    rate_interval,
    risk_coverage,
    spearman,
)
from quaver.evaluate.statistics import wilson


def made(kind: str, options: int, n: int = 400, per_record: int = 1, seed: int = 0) -> list[Item]:
    """Items whose probabilities are right on average."""
    rng = np.random.default_rng(seed)
    ids = ("true", "false") if kind == "noul" else tuple(str(i) for i in range(options))
    items = []
    for i in range(n):
        p = rng.dirichlet(np.ones(options))
        label = int(rng.choice(options, p=p))
        items.append(Item(f"r{i // per_record}", "q", kind, ids, label, tuple(p)))
    return items


def test_nouls_against_sklearn() -> None:
    items = made("noul", 2)
    c = columns(items)
    truth = np.array([item.label == 0 for item in items])
    p = np.array([item.probabilities[0] for item in items])
    assert accuracy(c) == pytest.approx(sk.accuracy_score(truth, p > 0.5))
    assert balanced_accuracy(c) == pytest.approx(sk.balanced_accuracy_score(truth, p > 0.5))
    assert auroc(c) == pytest.approx(sk.roc_auc_score(truth, p))
    assert log_loss(c) == pytest.approx(sk.log_loss(truth, p))
    assert brier(c) == pytest.approx(sk.brier_score_loss(truth, p))


def test_auroc_counts_ties_as_half() -> None:
    p, truth = [0.2, 0.2, 0.7, 0.7, 0.9], [1, 0, 1, 0, 1]
    items = [
        Item(str(i), "q", "noul", ("true", "false"), 1 - y, (x, 1 - x))
        for i, (x, y) in enumerate(zip(p, truth, strict=True))
    ]
    assert auroc(columns(items)) == pytest.approx(sk.roc_auc_score(truth, p))
    assert math.isnan(auroc(columns(items[:1])))


def test_choices_against_sklearn() -> None:
    items = made("choice", 5)
    c = columns(items)
    truth = np.array([item.label for item in items])
    p = np.array([item.probabilities for item in items])
    assert balanced_accuracy(c) == pytest.approx(sk.balanced_accuracy_score(truth, p.argmax(axis=1)))
    assert log_loss(c) == pytest.approx(sk.log_loss(truth, p))
    assert brier(c) == pytest.approx(((p - np.eye(5)[truth]) ** 2).sum(axis=1).mean())


def test_scores_against_scipy_and_by_hand() -> None:
    items = made("score", 4)
    expected = [sum(i * x for i, x in enumerate(item.probabilities)) for item in items]
    found = spearman(columns(items))
    assert found == pytest.approx(stats.spearmanr(expected, [item.label for item in items]).statistic)
    one = Item("r", "q", "score", ("0", "1", "2"), 2, (0.2, 0.3, 0.5))
    assert ranked_probability(columns([one])) == pytest.approx((0.2**2 + 0.5**2) / 2)
    constant = [Item(str(i), "q", "score", ("0", "1"), i % 2, (0.5, 0.5)) for i in range(4)]
    assert math.isnan(spearman(columns(constant)))


def test_calibration_error_by_hand() -> None:
    # Two bins of five: sure 0.6 with 2 right, sure 0.9 with 5 right.
    items = [Item(str(i), "q", "choice", ("a", "b"), int(i >= 2), (0.6, 0.4)) for i in range(5)]
    items += [Item(str(i), "q", "choice", ("a", "b"), 0, (0.9, 0.1)) for i in range(5, 10)]
    assert calibration_error(columns(items)) == pytest.approx(0.5 * abs(0.6 - 0.4) + 0.5 * abs(0.9 - 1.0))
    # Equal confidences are one bin however many there are.
    same = [Item(str(i), "q", "choice", ("a", "b"), int(i % 10 >= 7), (0.7, 0.3)) for i in range(1000)]
    assert calibration_error(columns(same)) == pytest.approx(0.0, abs=1e-12)


def test_the_noise_floor_is_what_calibrated_answers_score() -> None:
    errors = [calibration_error(columns(made("choice", 3, 300, seed=seed))) for seed in range(60)]
    floor = calibration_floor(columns(made("choice", 3, 300)), np.random.default_rng(0))
    assert floor == pytest.approx(np.mean(errors), rel=0.15)


def test_risk_and_coverage_by_hand() -> None:
    sure, right = [0.9, 0.8, 0.7, 0.6], [True, False, True, False]
    items = [
        Item(str(i), "q", "choice", ("a", "b"), int(not ok), (p, 1 - p))
        for i, (p, ok) in enumerate(zip(sure, right, strict=True))
    ]
    c = columns(items)
    share, risk = risk_coverage(c)
    assert share.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert aurc(c) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert coverage_at(0.35)(c) == 0.75 and coverage_at(0.0)(c) == 0.25
    even = columns([Item(str(i), "q", "choice", ("a", "b"), i % 2, (0.5, 0.5)) for i in range(10)])
    assert aurc(even) == pytest.approx(1 - accuracy(even))


def test_a_failure_is_certainty_in_a_wrong_option() -> None:
    failed = Item("r", "q", "noul", ("true", "false"), 0, ())
    certain = Item("r", "q", "noul", ("true", "false"), 0, (0.0, 1.0))
    for metric in (accuracy, balanced_accuracy, log_loss, brier, calibration_error, aurc):
        assert metric(columns([failed] * 3)) == metric(columns([certain] * 3))
    assert log_loss(columns([failed])) == pytest.approx(-math.log(1e-9))
    assert columns([Item("r", "q", "choice", ("only",), 0, ())]).right.tolist() == [0.0]


def test_intervals_of_rates() -> None:
    values = np.array([1.0] * 45 + [0.0] * 5)
    assert rate_interval(values, np.arange(50)) == pytest.approx(wilson(45, 50))
    # Ten answers about one record that agree are one answer, not ten.
    same = rate_interval(np.repeat(values, 10), np.repeat(np.arange(50), 10))
    assert same.high - same.low >= 0.95 * (wilson(45, 50).high - wilson(45, 50).low)
    assert rate_interval(np.ones(50), np.repeat(np.arange(5), 10)) == pytest.approx(wilson(5, 5))


def test_intervals_hold_the_truth() -> None:
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(80), 5)
    held = 0
    for _ in range(400):
        rate = rng.beta(8, 2, size=80)
        values = (rng.random(400) < rate[cluster]).astype(float)
        low, high = rate_interval(values, cluster)
        held += low <= 0.8 <= high
    assert held / 400 >= 0.92


def test_every_metric_comes_with_its_interval_and_count() -> None:
    for kind, options, own in (("noul", 2, {"auroc"}), ("score", 4, {"ranked_probability", "spearman"})):
        found = {m.name: m for m in measure(made(kind, options, 200, per_record=2), risk=0.1)}
        common = {"accuracy", "balanced_accuracy", "log_loss", "brier", "ece", "aurc", "coverage_at_0.1"}
        assert set(found) == common | own
        assert all(m.low <= m.value <= m.high and m.n == 200 for m in found.values())
        assert found["ece"].floor is not None and found["ece"].floor > 0
    mixed = measure([*made("noul", 2, 20), *made("score", 4, 20)])
    assert "auroc" not in {m.name for m in mixed}
