"""eval, calibrate and bench as commands, against a real server and on files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quaver.errors import BadRequest, QuaverError
from quaver.evaluate.run import read_run
from quaver.questions.calibration import load_calibration

Serve = Callable[[Any], str]
Command = Callable[..., Any]


@pytest.mark.parametrize("dialect", ["systemone", "decisions"])
def test_eval_of_a_server(
    quaver: Command, fake: Any, serve: Serve, rows_file: Callable[[int], Path], tmp_path: Path, dialect: str
) -> None:
    url, rows, out = serve(fake()), rows_file(30), tmp_path / "run.jsonl"
    command = ("eval", rows, "--url", url, "--dialect", dialect, "--out", out, "--expect-model", "fake-1")
    found = json.loads(quaver(*command, "--coherence", "5", "--json").stdout)
    assert found["manifest"]["asked"]["target"]["serves"][0] == "fake-1"
    assert found["manifest"]["asked"]["data"]["records"] == 30
    assert found["manifest"]["noted"]["read_back"]["/v1/models"]["data"][0]["id"] == "fake-1"
    assert found["metrics"]["all"]["accuracy"]["value"] > 0.9
    assert len(found["coherence"]) == 5 and found["models"] == ["fake-1"]
    assert len(read_run(out)[1]) == 30 + 5 * 9


def test_eval_resumes_judges_and_reports(
    quaver: Command, fake: Any, serve: Serve, rows_file: Callable[[int], Path], tmp_path: Path
) -> None:
    decider, rows = fake(), rows_file(20)
    url = serve(decider)
    decider.before = lambda call: BadRequest("no") if call == 1 else None
    files = ("--out", tmp_path / "run.jsonl", "--html", tmp_path / "r.html", "--junit", tmp_path / "r.xml")
    failed = quaver("eval", rows, "--url", url, *files, "--fail-under", "accuracy=0.99", code=3)
    assert "failed accuracy >= 0.99" in failed.stderr and "3 of 60 labelled questions" in failed.stderr
    assert "balanced_accuracy" in failed.stdout
    calls = decider.calls
    quaver("eval", rows, "--url", url, *files, "--fail-under", "accuracy=0.8", "--fail-over", "brier=0.5")
    assert decider.calls == calls + 1
    assert 'tests="3" failures="0"' in (tmp_path / "r.xml").read_text()
    assert (tmp_path / "r.html").read_text().count("<svg") >= 4
    with pytest.raises(BadRequest, match=r"holds another run \(different: data\)"):
        quaver("eval", rows, "--url", url, "--limit", "5", *files)
    with pytest.raises(QuaverError, match="answers of other-2 were expected"):
        quaver("eval", rows, "--url", url, "--expect-model", "other-2", "--out", tmp_path / "other.jsonl")


def test_eval_of_baselines_on_csv(quaver: Command, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("late: {type: noul, instructions: Is it late}\n")
    (tmp_path / "r.csv").write_text("state,late\n" + "a,true\n" * 6 + "b,false\n" * 2)
    command = ("eval", tmp_path / "r.csv", "--questions", tmp_path / "q.yaml", "--json", "--baseline")
    uniform = json.loads(quaver(*command, "uniform", "--out", tmp_path / "u.jsonl").stdout)
    prior = json.loads(quaver(*command, "prior", "--out", tmp_path / "p.jsonl").stdout)
    assert uniform["metrics"]["all"]["log_loss"]["value"] == pytest.approx(0.6931, abs=1e-3)
    assert prior["metrics"]["all"]["log_loss"]["value"] < 0.6


def test_calibrate_writes_a_file_and_prints_a_table(
    quaver: Command, fake: Any, serve: Serve, rows_file: Callable[[int], Path], tmp_path: Path
) -> None:
    url = serve(fake(skill=1.6, boast=2.5))
    run, out = tmp_path / "run.jsonl", tmp_path / "c.json"
    quaver("eval", rows_file(400), "--url", url, "--out", run, "--json")
    done = quaver("calibrate", run, "--out", out)
    found = load_calibration(out)
    assert found.model == "fake-1" and found.id in done.stderr
    assert found.data == read_run(run)[0].asked["data"]["sha256"]
    assert "temperature" in done.stdout and "Thresholds" in done.stdout
    last = json.loads(quaver("calibrate", run, "--out", out, "--json").stdout)
    assert last["calibration"] == found.id and len(last["thresholds"]) == 30
    with pytest.raises(BadRequest, match="go together"):
        quaver("calibrate", run, "--fold", tmp_path)


def test_bench_of_both_dialects(quaver: Command, fake: Any, serve: Serve, tmp_path: Path) -> None:
    url = serve(fake())
    few = ("--concurrency", "2", "--requests", "8", "--rounds", "2", "--warmup", "1", "--words", "10")
    page = ("--html", tmp_path / "load.html")
    done = quaver("bench", url, f"openai={url}/v1/decisions", "--mode", "sweep", *few, *page)
    last = json.loads(done.stdout.splitlines()[-1])
    assert set(last["results"]) == {url, "openai"} == set(last["settings"]["servers"])
    for found in last["results"].values():
        assert [level["load"]["concurrency"] for level in found["levels"]] == [1, 2]
        assert all((level["ok"], level["cached_share"]) == (8, 0.25) for level in found["levels"])
    assert "openai" in done.stdout and (tmp_path / "load.html").read_text().startswith("<!doctype html>")
    only = quaver("bench", url, "--mode", "constant", "--rate", "500", *few, "--json")
    assert len(only.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (["http://h:1", "http://h:1"], "two servers have one name"),
        (["127.0.0.1:80"], "is not an address"),
        (["http://[h"], "is not an address"),
        (["http://h:99999"], "is not an address"),
        (["http://:80"], "is not an address"),
    ],
)
def test_bench_refuses(quaver: Command, servers: list[str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        quaver("bench", *servers)
