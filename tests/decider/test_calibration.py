"""A calibration that is served: applied once, stated in every answer, and abstention on request."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from vectors import FLASH

import quaver
from quaver.decider import Decider
from quaver.errors import BadRelease, BadRequest
from quaver.models.release import inspect
from quaver.questions.calibration import Calibration, Temperature
from quaver.server import create_app

STATE = "The parcel came late and the box was torn."
LATE = {"type": "noul", "instructions": "Is it late?"}
WHAT = {"type": "choice", "instructions": "What is it?", "criteria": {"z": "a parcel", "a": None}}
BODY = {"state": STATE, "questions": {"late": LATE, "what": WHAT}}
DECISIONS = {"input": STATE, "questions": [{"type": "predicate", "instructions": "Is it late?"}]}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("calibration") / "calibration.json"
    thresholds: dict[str, Any] = {"noul": {"asked": {0.1: 0.5, 0.01: math.inf}}}
    Calibration(inspect(FLASH).name, "0" * 64, {"noul": Temperature(2.0)}, thresholds).save(path)
    return path


@pytest.fixture(scope="module")
def plain() -> Iterator[Decider[Any]]:
    with quaver.load(str(FLASH), dtype="float32") as decider:
        yield decider


@pytest.fixture(scope="module")
def calibrated(file: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(FLASH), dtype="float32", calibration=file) as decider:
        yield decider


def test_it_is_applied_once_and_stated(plain: Decider[Any], calibrated: Decider[Any]) -> None:
    before, after = plain.systemone(BODY), calibrated.systemone(BODY)
    p = before["answers"]["late"]["noul"]
    odds = math.sqrt(p / (1 - p))
    assert after["answers"]["late"]["noul"] == pytest.approx(odds / (1 + odds), abs=1e-9)
    assert after["answers"]["what"] == before["answers"]["what"]
    assert len(after["x_calibration"]) == 12
    assert "x_calibration" not in before


def test_a_server_states_it_in_both_dialects(file: Path) -> None:
    with TestClient(create_app(quaver.load(str(FLASH), calibration=file))) as client:
        stated = client.post("/v1/systemone", json=BODY)
        header = client.post("/v1/decisions", json=DECISIONS).headers["x-quaver-calibration"]
    assert stated.json()["x_calibration"] == stated.headers["x-quaver-calibration"] == header


@pytest.mark.parametrize(("target", "abstains"), [(0.1, False), (0.01, True)])
def test_abstention_is_served_on_request(calibrated: Decider[Any], target: float, abstains: bool) -> None:
    wish = {"x_abstain": {"target": target}}
    answer = calibrated.systemone({**BODY, "questions": {"late": LATE}, **wish})["answers"]["late"]
    assert answer["x_abstain"] is abstains
    assert 0 < answer["noul"] < 1
    assert "x_abstain" not in calibrated.decisions(DECISIONS)["answers"][0]
    assert calibrated.decisions({**DECISIONS, **wish})["answers"][0]["x_abstain"] is abstains


def test_abstention_that_cannot_be_promised_is_refused(plain: Decider[Any], calibrated: Decider[Any]) -> None:
    wish = {**BODY, "x_abstain": {"target": 0.1}}
    with pytest.raises(BadRequest, match="needs a calibration"):
        plain.systemone(wish)
    with pytest.raises(BadRequest, match="no threshold of choice questions"):
        calibrated.systemone(wish)


def test_one_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    Calibration("another-model", "0" * 64, {}, {}).save(path)
    with pytest.raises(BadRelease, match="fitted on another-model and cannot serve clef-flash-tiny@"):
        quaver.load(str(FLASH), calibration=path)
