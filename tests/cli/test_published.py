"""``quaver ask`` with published decision checkpoints: they are recognised, images and all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from d3_tiny import d3_release
from liquid_tiny import liquid_release
from PIL import Image
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app

STATE = "The parcel came late and the box was torn."


@pytest.mark.parametrize("make", [d3_release, liquid_release])
def test_it_answers_as_a_decider_does(make: object, tmp_path: Path) -> None:
    assert callable(make)
    folder = make(tmp_path / "published")
    picture = tmp_path / "red.png"
    Image.new("RGB", (90, 70), "red").save(picture)
    told = ["--model", str(folder), "--noul", "Is it late?", "--image", str(picture), "--json"]
    done = CliRunner().invoke(app, ["ask", STATE, *told])
    assert done.exit_code == 0, done.output
    reply = json.loads(done.stdout)
    with quaver.load(str(folder)) as decider:
        expected = decider.decide(STATE, {"Is it late?": quaver.Noul("Is it late?")}, images=[picture])
    assert reply["answers"]["Is it late?"]["noul"] == pytest.approx(expected["Is it late?"].probability, abs=1e-6)
    assert 0 < reply["x_label_mass"]["Is it late?"] < 1
    assert reply["model"].startswith("published@")
