"""``quaver ask`` with a chat model: the settings of label reads, as ``quaver serve`` has them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from chat_release import chat_release
from typer.testing import CliRunner

import quaver
from quaver.cli.ask import ask
from quaver.cli.main import app
from quaver.cli.serve import serve
from quaver.errors import BadRequest
from quaver.questions import LabelRule, Request

STATE = "The parcel came late and the box was torn."
TEAMS = ("billing", "delivery", "tech")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_release(tmp_path_factory.mktemp("releases") / "tiny-chat")


def run(folder: Path, *arguments: str) -> str:
    question = ["--choice", f"Which team? = {' | '.join(TEAMS)}"]
    done = CliRunner().invoke(app, ["ask", STATE, *question, "--model", str(folder), *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return done.stdout


def reply(folder: Path, *arguments: str) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(run(folder, "--json", *arguments))
    return answered


def probabilities(answered: dict[str, Any]) -> dict[str, float]:
    of_options: dict[str, float] = answered["answers"]["Which team?"]["probabilities"]
    return of_options


def test_a_correction_is_that_of_a_decider(folder: Path) -> None:
    plain, corrected = reply(folder), reply(folder, "--prior-correction", "--option-orders", "2")
    with quaver.load(str(folder)) as decider:
        questions = {"Which team?": quaver.Choice("Which team?", dict.fromkeys(TEAMS))}
        rule = LabelRule(prior_correction=True, orders=2)
        expected = decider.submit(Request(STATE, questions, labels=rule)).result()["Which team?"].probabilities
    assert probabilities(corrected) == pytest.approx(expected, abs=1e-4)
    assert probabilities(corrected) != probabilities(plain)
    assert "x_order_spread" in corrected and "x_order_spread" not in plain


def test_answers_without_label_mass_are_marked(folder: Path) -> None:
    assert reply(folder, "--min-label-mass", "1")["answers"]["Which team?"]["x_abstain"] is True
    assert reply(folder, "--min-label-mass", "0")["answers"]["Which team?"]["x_abstain"] is False
    assert "to be left aside" in run(folder, "--min-label-mass", "1")
    assert "to be left aside" not in run(folder, "--min-label-mass", "0")


def test_prompts_are_written_as_told(folder: Path) -> None:
    with quaver.load(str(folder), prompt_style="vllm") as decider:
        expected = decider.decide(STATE, {"Which team?": quaver.Choice("Which team?", dict.fromkeys(TEAMS))})
    written = probabilities(reply(folder, "--prompt-style", "vllm"))
    assert written == pytest.approx(expected["Which team?"].probabilities, abs=1e-4)
    assert written != probabilities(reply(folder))
    with pytest.raises(BadRequest, match="options in the order of the request"):
        run(folder, "--prompt-style", "vllm", "--option-orders", "2")


def test_other_models_have_no_labels() -> None:
    for wrong in (["--prior-correction"], ["--option-orders", "2"], ["--prompt-style", "vllm"]):
        with pytest.raises(BadRequest, match="does not read labels"):
            run(Path("embedded"), *wrong)


def test_ask_and_serve_share_their_settings() -> None:
    """One wording and one default for both commands."""
    asks, serves = inspect.signature(ask).parameters, inspect.signature(serve).parameters
    labels = ("min_label_mass", "prior_correction", "option_orders", "prompt_style")
    for name in labels:
        asked, served = (vars(options[name].annotation.__metadata__[0]) for options in (asks, serves))
        assert (asked, asks[name].default) == (served, serves[name].default)
