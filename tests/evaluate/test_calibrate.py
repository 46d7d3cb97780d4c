"""Calibration finds what was done to the probabilities, keeps its guarantee, and cannot be applied twice."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from quaver.errors import BadRelease, BadRequest
from quaver.evaluate.calibrate import (
    Calibrated,
    calibrate,
    control_risk,
    control_selected,
    fit_isotonic,
    single_temperature,
)
from quaver.evaluate.fold import fold, fold_release
from quaver.evaluate.metrics import Item
from quaver.evaluate.records import Record
from quaver.heads.joint_schema import HeadInput, JointSchemaHead
from quaver.questions.calibration import Calibration, Isotonic, Temperature, bucket, load_calibration

Records = Callable[[int], list[Record]]
BOAST = 2.5


@pytest.fixture(scope="module")
def overconfident(records: Records, fake: Any, ask: Any) -> Any:
    """A run of a decider whose logits are ``BOAST`` times too large."""
    return ask(records(1200), fake(skill=1.6, boast=BOAST))


def test_the_temperature_that_was_put_in_is_found(overconfident: Any) -> None:
    found = calibrate(*overconfident)
    by_bucket = {fit.bucket: fit for fit in found.fits}
    assert set(by_bucket) == {"noul", "choice", "score"}
    for fit in by_bucket.values():
        assert isinstance(fit.map, Temperature)
        assert fit.map.value == pytest.approx(BOAST, rel=0.2)
        assert fit.log_loss[1] < fit.log_loss[0] - 0.05
        assert fit.ece[1] < fit.ece[0] / 2


def test_a_calibrated_model_is_left_as_it_is(records: Records, fake: Any, ask: Any) -> None:
    found = calibrate(*ask(records(600), fake(skill=1.6)))
    assert all(fit.map is None or abs(math.log(fit.map.value)) < 0.2 for fit in found.fits)


def test_a_crooked_curve_gets_an_isotonic_map(records: Records, fake: Any, ask: Any) -> None:
    decider = fake(skill=1.6)
    decider.bend = lambda kind, p: [p[0] ** 3, 1 - p[0] ** 3] if kind == "noul" else p
    found = {fit.bucket: fit for fit in calibrate(*ask(records(2000), decider)).fits}
    assert isinstance(found["noul"].map, Isotonic)
    assert found["noul"].ece[1] < 0.05 < found["noul"].ece[0]
    for true in (0.2, 0.5, 0.9):
        assert found["noul"].map.noul(true**3)[0] == pytest.approx(true, abs=0.1)


def test_isotonic_against_sklearn() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(0)
    p = rng.random(500).round(2)
    y = rng.random(500) < p**2
    items = [
        Item(str(i), "q", "noul", ("true", "false"), int(not t), (float(x), float(1 - x)))
        for i, (x, t) in enumerate(zip(p, y, strict=True))
    ]
    ours = fit_isotonic(items)
    theirs = IsotonicRegression(y_min=0.001, y_max=0.999).fit(p, y)
    for x in p[:100]:
        assert ours.at(float(x)) == pytest.approx(0.999 * float(theirs.predict([x])[0]) + 0.001 * x, abs=1e-9)


probability_rows = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=40).map(lambda w: [x / sum(w) for x in w])
maps = st.one_of(
    st.floats(0.05, 20).map(Temperature),
    st.lists(st.floats(0, 1), min_size=2, max_size=8, unique=True).map(
        lambda xs: Isotonic(tuple((x, y) for x, y in zip(sorted(xs), sorted(x**2 for x in xs), strict=True)))
    ),
)


@given(probability_rows, maps, st.sampled_from(["choice", "score", "noul"]))
def test_a_map_gives_probabilities_and_keeps_the_order(p: Sequence[float], made: Any, kind: str) -> None:
    p = [p[0], 1 - p[0]] if kind == "noul" else p
    found = Calibration("m", "d", {kind: made}, {}).apply(kind, p)
    assert sum(found) == pytest.approx(1)
    assert min(found) >= 0
    if kind != "noul":  # a yes/no map may move the threshold, which is its purpose
        order = sorted(range(len(p)), key=p.__getitem__)
        assert all(found[a] <= found[b] + 1e-12 for a, b in pairwise(order))


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=20), st.floats(0.1, 10))
def test_a_temperature_divides_logits(logits: list[float], temperature: float) -> None:
    def softmax(values: list[float]) -> list[float]:
        weights = [math.exp(v - max(values)) for v in values]
        return [w / sum(weights) for w in weights]

    assert Temperature(temperature)(softmax(logits)) == pytest.approx(
        softmax([x / temperature for x in logits]), abs=1e-9
    )


def test_buckets() -> None:
    assert [bucket("choice", n) for n in (2, 3, 4, 8, 32, 33, 255)] == [
        "choice 2", "choice 3-4", "choice 3-4", "choice 5-8", "choice 17-32", "choice 33+", "choice 33+",
    ]  # fmt: skip
    assert bucket("noul", 2) == "noul" and bucket("score", 10) == "score 9-16"
    only_choice = Calibration("m", "d", {"choice": Temperature(2.0), "choice 3-4": Temperature(4.0)}, {})
    assert only_choice.apply("choice", [0.8, 0.2]) == Temperature(2.0)([0.8, 0.2])
    assert only_choice.apply("choice", [0.5, 0.3, 0.2]) == Temperature(4.0)([0.5, 0.3, 0.2])
    assert only_choice.apply("score", [0.5, 0.5]) == [0.5, 0.5]
    assert only_choice.apply("choice", [1.0]) == [1.0]


def test_a_file_says_whose_it_is_and_comes_back_the_same(overconfident: Any, tmp_path: Path) -> None:
    found = calibrate(*overconfident).calibration
    found.save(tmp_path / "c.json")
    again = load_calibration(tmp_path / "c.json")
    assert again == found and again.id == found.id and len(found.id) == 12
    assert (found.model, found.data) == ("fake-1", "0" * 64)
    found.require("fake-1")
    with pytest.raises(BadRelease, match="fitted on fake-1 and cannot serve fake-2"):
        found.require("fake-2")
    assert replace(found, model="fake-2").id != found.id


@pytest.mark.parametrize(
    "content",
    ["", "{}", '{"quaver_calibration": 2}', "[1]",
     '{"quaver_calibration": 1, "model": "m", "data": "d", "maps": {"noul": {"temperature": -1}}, "thresholds": {}}',
     '{"quaver_calibration": 1, "model": "m", "data": "d", "maps": {"noul": {"isotonic": []}}, "thresholds": {}}',
     '{"quaver_calibration": 1, "model": "m", "data": "d", "maps": {"n": {"isotonic": [[0.5, 1], [0.4, 1]]}}}'],
)  # fmt: skip
def test_what_is_no_calibration_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(BadRelease, match="is not a calibration"):
        load_calibration(tmp_path / "c.json")


def test_what_cannot_be_calibrated(overconfident: Any) -> None:
    manifest, outcomes = overconfident
    with pytest.raises(BadRequest, match="calibrated already"):
        calibrate(manifest, [replace(outcome, calibration="abc") for outcome in outcomes])
    with pytest.raises(BadRequest, match="one named model"):
        calibrate(manifest, [replace(outcome, model=None) for outcome in outcomes])
    with pytest.raises(BadRequest, match="one named model"):
        calibrate(manifest, [replace(outcomes[0], model="other"), *outcomes[1:]])
    with pytest.raises(BadRequest, match="at least 50 are needed"):
        calibrate(manifest, outcomes[:10])


def test_many_questions_of_few_records_are_calibrated_or_refused(overconfident: Any) -> None:
    """All may fall into one part of the data, which leaves nothing to fit on."""
    manifest, outcomes = overconfident
    found = []
    for name in map(str, range(12)):
        items = tuple(replace(item, record=name) for outcome in outcomes[:40] for item in outcome.items)
        with suppress(BadRequest):
            found.append(calibrate(manifest, [replace(outcomes[0], record=name, items=items)]).calibration.maps)
    assert 0 < len(found) < 12 and not any(found)


def test_risk_control_by_hand() -> None:
    sure, losses = np.array([0.9, 0.8, 0.8, 0.4]), np.array([0.0, 0.0, 1.0, 1.0])
    # (n R + 1) / (n + 1) for thresholds 0.9, 0.8, 0.4: 1/5, 2/5, 3/5.
    assert [control_risk(sure, losses, 4, target) for target in (0.1, 0.2, 0.39, 0.4, 0.6)] == [
        math.inf, 0.9, 0.9, 0.8, 0.0,
    ]  # fmt: skip


def test_risk_control_keeps_its_promise() -> None:
    """Over many draws of records the mean risk on new ones stays within the target, and near it."""
    rng = np.random.default_rng(0)
    risks = []
    for _ in range(400):
        sure = rng.random(200)
        losses = (rng.random(200) > sure).astype(float)
        least = control_risk(sure, losses, 200, 0.1)
        # P(answered and wrong) when the confidence is uniform and right as often as it says.
        risks.append(0.0 if math.isinf(least) else (1 - least) ** 2 / 2)
    assert 0.08 < np.mean(risks) <= 0.1 + 3 * np.std(risks) / math.sqrt(len(risks))


def test_risk_among_the_answered_by_hand() -> None:
    sure = np.linspace(0.5, 1.0, 200)
    assert control_selected(sure, np.zeros(200), 0.05) == pytest.approx(sure[0])
    assert control_selected(sure[:116], np.zeros(116), 0.05) == math.inf
    # The 60 least certain are wrong: 140 right ones, at coverage 0.7, are the most that can be answered.
    assert control_selected(sure, (np.arange(200) < 60).astype(float), 0.05) <= sure[60]
    assert control_selected(sure, np.ones(200), 0.2) == math.inf


def test_risk_among_the_answered_keeps_its_promise() -> None:
    """Confidences are uniform and right as often as they say, so those above t are wrong (1 - t) / 2 of the time."""
    rng = np.random.default_rng(0)
    broken, answered = 0, 0
    for _ in range(300):
        sure = rng.random(800)
        least = control_selected(sure, (rng.random(800) > sure).astype(float), 0.2)
        answered += not math.isinf(least)
        broken += not math.isinf(least) and (1 - least) / 2 > 0.2
    assert answered > 200 and broken / 300 <= 0.05


def test_thresholds_are_found_by_type_target_and_share(overconfident: Any) -> None:
    found = calibrate(*overconfident)
    rows = {(row.kind, row.of, row.target): row for row in found.thresholds}
    targets = (0.01, 0.02, 0.05, 0.1, 0.2)
    assert set(rows) == {
        (k, of, t) for k in ("noul", "choice", "score") for of in ("asked", "answered") for t in targets
    }
    for kind in ("noul", "choice", "score"):
        for of in ("asked", "answered"):
            answered = [rows[kind, of, target].answered for target in targets]
            assert answered == sorted(answered) and answered[-1] > 0.3
        row = rows[kind, "answered", 0.2]
        assert row.wrong < 0.2
    row = rows["choice", "asked", 0.1]
    assert found.calibration.threshold("choice", 0.1) == row.least
    assert found.calibration.threshold("choice", 0.01, "answered") == math.inf
    with pytest.raises(BadRequest, match=r"target error of 0.3; it has 0.01, 0.02, 0.05, 0.1, 0.2"):
        found.calibration.threshold("choice", 0.3)
    with pytest.raises(BadRequest, match="it has none"):
        replace(found.calibration, thresholds={}).threshold("choice", 0.1)


CONFIG = {"hidden_size": 12, "width": 8, "routing_layers": 1, "layers": 1, "heads": 2, "feedforward": 16}


def head_and_rows() -> tuple[JointSchemaHead, HeadInput]:
    torch.manual_seed(0)
    head = JointSchemaHead(**CONFIG).eval()
    with torch.no_grad():
        head.prior_logit_scale.fill_(2.0)
        head.joint_logit_scale.fill_(7.0)  # beyond the clamp, which the fold has to reckon with
    rows = HeadInput(
        memory=torch.randn(6, 8),
        question=torch.randn(2, 12),
        context=torch.randn(5, 12),
        lexical=torch.randn(5, 12),
        summary=torch.randn(12),
        anchor=torch.randn(2, 12),
        types=torch.tensor([0, 1]),
        owner=torch.tensor([0, 0, 1, 1, 1]),
    )
    return head, rows


@pytest.mark.parametrize("temperature", [1.7, 0.99999, 30.0])
def test_a_folded_head_gives_the_logits_divided(temperature: float) -> None:
    head, rows = head_and_rows()
    with torch.no_grad():
        head.joint_logit_scale.fill_(7.0 if temperature > 1 else 3.0)
        before = head([rows])[0]
        folded = JointSchemaHead(**CONFIG).eval()
        folded.load_state_dict(fold(head.state_dict(), temperature))
        torch.testing.assert_close(folded([rows])[0], before / temperature, rtol=1e-5, atol=1e-6)


def test_a_fold_that_would_not_be_exact_is_refused() -> None:
    head, _ = head_and_rows()
    with pytest.raises(BadRelease, match="joint_logit_scale beyond the head's limit"):
        fold(head.state_dict(), 0.5)


def test_a_folded_release_names_its_calibration(overconfident: Any, tmp_path: Path) -> None:
    release = tmp_path / "fake-1"
    release.mkdir()
    head, _ = head_and_rows()
    save_file(head.state_dict(), release / "joint_head.safetensors")
    (release / "config.json").write_text(json.dumps({"model_type": "x"}))
    (release / "tokenizer.json").write_text("{}")
    several, single = calibrate(*overconfident), calibrate(*overconfident, single=True)
    with pytest.raises(BadRequest, match="one temperature"):
        fold_release(release, "fake-1", several.calibration, tmp_path / "out")
    fold_release(release, "fake-1", single.calibration, tmp_path / "out")
    name = f"fake-1+{single.calibration.id}"
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"model_type": "x", "name": name}
    assert (tmp_path / "out" / "tokenizer.json").exists()
    expected = fold(head.state_dict(), temperature_of(single))
    found = load_file(tmp_path / "out" / "joint_head.safetensors")
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    with pytest.raises(BadRelease, match="cannot serve"):
        single.calibration.require(name)
    with pytest.raises(BadRelease, match="exists already"):
        fold_release(release, "fake-1", single.calibration, tmp_path / "out")


def temperature_of(found: Calibrated) -> float:
    temperature = single_temperature(found.calibration)
    assert temperature == pytest.approx(BOAST, rel=0.2)
    return temperature
