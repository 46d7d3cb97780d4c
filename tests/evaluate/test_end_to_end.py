"""eval, calibrate, fold and bench on real models: the embedded one, and another project's behind its own server."""

import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quaver import Choice, Noul, Score, load
from quaver.decider.load import embedded_path
from quaver.errors import BadRelease, BadRequest
from quaver.evaluate.answerer import probabilities
from quaver.evaluate.fold import fold_release
from quaver.evaluate.run import read_run
from quaver.models.release import inspect
from quaver.questions.calibration import Calibration, Temperature, load_calibration

Command = Callable[..., Any]

THINGS = {
    "cars": ("engine", "brakes", "gearbox"),
    "food": ("soup", "pizza", "salad"),
    "music": ("song", "album", "choir"),
}
FEELINGS = {True: ("wonderful", "great", "a joy"), False: ("terrible", "awful", "a disappointment")}
QUESTIONS = {
    "good": {"type": "noul", "instructions": "Is the writer pleased?"},
    "topic": {"type": "choice", "instructions": "What is it about?", "criteria": dict.fromkeys(THINGS)},
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = [
        {"state": f"{opening} {thing} was {feeling}.", "labels": {"good": good, "topic": topic}}
        for opening in ("The", "I must say that the", "Everybody agrees that the")
        for topic, things in THINGS.items()
        for thing in things
        for good, feelings in FEELINGS.items()
        for feeling in feelings
    ]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps({**row, "questions": QUESTIONS}) + "\n" for row in made))
    return path


def last(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(command: Command, found: dict[str, Any], run_file: Path, out: Path) -> None:
    """What holds for any model that is better than chance."""
    assert found["errors"] == {} and found["metrics"]["all"]["accuracy"]["n"] == 324
    assert found["metrics"]["choice"]["accuracy"]["low"] > 1 / 3
    assert found["metrics"]["all"]["log_loss"]["value"] < found["uniform"]["log_loss"]["value"]
    fitted = last(command("calibrate", run_file, "--out", out, "--json"))
    assert all(fit["log_loss"][1] <= fit["log_loss"][0] for fit in fitted["fits"])
    assert load_calibration(out).model == found["models"][0]


def test_the_embedded_model(quaver: Command, rows: Path, tmp_path: Path) -> None:
    found = last(quaver("eval", rows, "--out", tmp_path / "run.jsonl", "--html", tmp_path / "page.html", "--json"))
    check(quaver, found, tmp_path / "run.jsonl", tmp_path / "c.json")
    assert (tmp_path / "page.html").stat().st_size > 50_000


def test_a_calibration_is_served_stated_and_not_fitted_on_again(quaver: Command, rows: Path, tmp_path: Path) -> None:
    plain, again, file = tmp_path / "plain.jsonl", tmp_path / "again.jsonl", tmp_path / "c.json"
    quaver("eval", rows, "--out", plain, "--json")
    quaver("calibrate", plain, "--out", file)
    calibration = load_calibration(file)
    found = last(quaver("eval", rows, "--calibration", file, "--out", again, "--json"))
    assert found["manifest"]["asked"]["target"]["calibration"] == calibration.id
    before = {outcome.record: outcome for outcome in read_run(plain)[1]}
    for outcome in read_run(again)[1]:
        assert outcome.calibration == calibration.id
        for name, p in before[outcome.record].answers.items():
            kind = QUESTIONS[name]["type"]
            assert outcome.answers[name] == pytest.approx(calibration.apply(kind, p), abs=1e-6)
    with pytest.raises(BadRequest, match="calibrated already"):
        quaver("calibrate", again, "--out", tmp_path / "twice.json")


def test_abstention_leaves_the_answer_complete(tmp_path: Path) -> None:
    name = inspect(embedded_path()).name
    thresholds: Any = {"noul": {"asked": {0.1: 0.0}, "answered": {0.1: math.inf}}}
    Calibration(name, "0", {"noul": Temperature(2.0)}, thresholds).save(tmp_path / "c.json")
    body = {"state": "The soup was awful.", "questions": {"good": QUESTIONS["good"]}}
    with load(calibration=tmp_path / "c.json") as decider:
        for of, abstains in (("asked", False), ("answered", True)):
            reply = decider.systemone({**body, "x_abstain": {"target": 0.1, "of": of}})
            assert reply["answers"]["good"]["x_abstain"] is abstains
            assert 0 < reply["answers"]["good"]["noul"] < 1
        assert "x_abstain" not in decider.systemone(body)["answers"]["good"]
        with pytest.raises(BadRequest, match=r"target error of 0\.2; it has 0\.1"):
            decider.systemone({**body, "x_abstain": {"target": 0.2}})
    Calibration("another-model", "0", {}, {}).save(tmp_path / "other.json")
    with pytest.raises(BadRelease, match="fitted on another-model and cannot serve"):
        load(calibration=tmp_path / "other.json")


def test_a_temperature_folded_into_the_embedded_model(tmp_path: Path) -> None:
    info = inspect(embedded_path())
    one = Calibration(info.name, "0", dict.fromkeys(("noul", "choice", "score"), Temperature(1.5)), {})
    fold_release(info.path, info.name, one, tmp_path / "folded")
    asked = {
        "good": Noul("Is the writer pleased?"),
        "topic": Choice("What is it about?", list(THINGS)),
        "heat": Score("How angry is the writer?", ["calm", "annoyed", "furious"]),
    }
    with load() as plain, load(str(tmp_path / "folded")) as folded:
        before, after = plain.decide("The soup was awful.", asked), folded.decide("The soup was awful.", asked)
    assert before.model == info.name
    assert after.model.startswith(f"quaver-mini+{one.id}@")
    for key, question in asked.items():
        expected = one.apply(question.type, probabilities(question, before[key]))
        assert probabilities(question, after[key]) == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def sparrow() -> Iterator[str]:
    """sparrow-decider behind its own server, which knows one dialect and no list of models."""
    program = shutil.which("sparrow-decider", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("sparrow-decider is not installed")
    url = f"http://127.0.0.1:{_free_port()}"
    server = subprocess.Popen([program, "serve", "--port", url.rpartition(":")[2]], stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                httpx.get(url)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


def test_another_projects_server(quaver: Command, rows: Path, sparrow: str, tmp_path: Path) -> None:
    found = last(quaver("eval", rows, "--url", sparrow, "--out", tmp_path / "run.jsonl", "--json"))
    check(quaver, found, tmp_path / "run.jsonl", tmp_path / "c.json")
    few = ("--concurrency", "2", "--requests", "20", "--warmup", "2", "--words", "20")
    assert last(quaver("bench", sparrow, *few, "--json"))["results"][sparrow]["levels"][0]["ok"] == 20


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
