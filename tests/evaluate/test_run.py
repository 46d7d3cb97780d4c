"""A run is resumable, counts retries and failures, and never mixes two models or two sets of questions."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from quaver.client import Client
from quaver.errors import BadRequest, Overloaded, QuaverError, ServerError, Unavailable
from quaver.evaluate.answerer import Prior, probabilities
from quaver.evaluate.decisions import DecisionsTransport, decisions_body, systemone_reply
from quaver.evaluate.metrics import accuracy, columns
from quaver.evaluate.records import Record
from quaver.evaluate.run import Manifest, Settings, read_run, run
from quaver.protocol import parse, reply
from quaver.questions import Answers, Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer

Records = Callable[[int], list[Record]]


def test_a_resumed_run_asks_only_what_is_missing(
    records: Records, fake: Any, manifest: Manifest, tmp_path: Path
) -> None:
    path, decider, asked = tmp_path / "run.jsonl", fake(), records(20)
    decider.before = lambda call: BadRequest("broken") if call in (3, 4) else None
    run(asked[:12], decider, path, manifest, Settings(1, 0))
    with path.open("a") as file:
        file.write('{"record": "r1", "ans')  # an interrupted write
    again = fake()
    heard: list[int] = []
    run(asked, again, path, manifest, Settings(3, 0), heard.append)
    assert again.calls == 10
    assert heard == list(range(11, 21))
    _, outcomes = read_run(path)
    assert sorted(outcome.record for outcome in outcomes) == sorted(record.id for record in asked)
    assert not any(outcome.error for outcome in outcomes)
    first, *lines = path.read_text().splitlines()
    assert json.loads(first)["manifest"]["asked"] == manifest.asked
    assert all(manifest.digest in line for line in lines if "interrupted" not in line and line.endswith("}"))


def test_a_file_of_another_run_is_refused(records: Records, fake: Any, manifest: Manifest, tmp_path: Path) -> None:
    run(records(2), fake(), tmp_path / "run.jsonl", manifest)
    later = replace(manifest, noted={"begun": "later"})
    run(records(2), fake(), tmp_path / "run.jsonl", later)
    other = Manifest({**manifest.asked, "target": "another"}, {})
    with pytest.raises(BadRequest, match="holds another run \\(different: target\\)"):
        run(records(2), fake(), tmp_path / "run.jsonl", other)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(BadRequest, match="is not a run file"):
        run(records(2), fake(), tmp_path / "notes.txt", manifest)


def test_states_with_unicode_line_ends_are_read_back(
    records: Records, fake: Any, manifest: Manifest, tmp_path: Path
) -> None:
    # A state of the web may hold them, and JSON writes them as they are.
    asked = [replace(record, state=f"a\u2028b\x85c {i}") for i, record in enumerate(records(3))]
    run(asked, fake(), tmp_path / "run.jsonl", manifest)
    assert {outcome.state for outcome in read_run(tmp_path / "run.jsonl")[1]} == {record.state for record in asked}
    again = fake()
    run(asked, again, tmp_path / "run.jsonl", manifest)
    assert again.calls == 0


def test_passing_failures_are_retried_and_counted(
    records: Records, fake: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("quaver.evaluate.run.time.sleep", waited.append)
    passing: dict[int, QuaverError] = {
        1: Overloaded("full", 7.0),
        2: Unavailable("starting"),
        3: ServerError("bad gateway", 502),
    }
    decider = fake()
    decider.before = passing.get
    _, (outcome,) = ask(records(1), decider, Settings(1, 3))
    assert (outcome.attempts, outcome.error, decider.calls) == (4, None, 4)
    assert waited[0] == 7.0 and len(waited) == 3


@pytest.mark.parametrize("error", [BadRequest("no"), ServerError("teapot", 418)])
def test_lasting_failures_are_not_retried_and_count_as_wrong(
    records: Records, fake: Any, ask: Any, error: QuaverError
) -> None:
    decider = fake(skill=9.0)
    decider.before = lambda call: error if call <= 5 else None
    _, outcomes = ask(records(10), decider, Settings(1, 3))
    assert decider.calls == 10
    items = [item for outcome in outcomes for item in outcome.items]
    assert (accuracy(columns(items)), len(items)) == (0.5, 30)


def test_a_model_that_changes_stops_the_run(records: Records, fake: Any, manifest: Manifest, tmp_path: Path) -> None:
    path, decider = tmp_path / "run.jsonl", fake()

    def switch(call: int) -> None:
        decider.name = "fake-1" if call <= 5 else "fake-2"

    decider.before = switch
    with pytest.raises(QuaverError, match="answers of fake-1 were expected and one came from fake-2"):
        run(records(10), decider, path, manifest, Settings(1, 0))
    assert {outcome.model for outcome in read_run(path)[1]} == {"fake-1"}
    with pytest.raises(QuaverError, match="fake-2"):
        run(records(10), fake(model="fake-2"), path, manifest, Settings(1, 0))
    with pytest.raises(QuaverError, match="expected and the file has some of fake-1"):
        run(records(10), fake(model="fake-2"), path, manifest, Settings(1, 0, expect_model="fake-2"))
    with pytest.raises(QuaverError, match="answers of fake-9 were expected"):
        run(records(10), fake(), tmp_path / "other.jsonl", manifest, Settings(1, 0, expect_model="fake-9"))


@pytest.mark.parametrize("dialect", ["systemone", "decisions"])
def test_a_server_gives_what_the_decider_gives(
    records: Records, fake: Any, ask: Any, serve: Callable[[Any], str], dialect: str
) -> None:
    _, here = ask(records(15), fake())
    transport = DecisionsTransport() if dialect == "decisions" else None
    with Client(serve(fake()), retries=0, transport=transport) as client:
        _, there = ask(records(15), client)
        assert "fake-1" in client.models()
    for one, other in zip(sorted(here, key=lambda o: o.record), sorted(there, key=lambda o: o.record), strict=True):
        assert other.error is None and other.model == "fake-1"
        for name, p in one.answers.items():
            assert other.answers[name] == pytest.approx(p, abs=1e-12)


def test_errors_of_a_decisions_server_arrive_as_they_are(fake: Any, serve: Callable[[Any], str]) -> None:
    decider = fake()
    decider.before = lambda _: BadRequest("nothing for you")
    with (
        Client(serve(decider), transport=DecisionsTransport()) as client,
        pytest.raises(BadRequest, match="nothing for you"),
    ):
        client.decide({"a": 1}, {"q": Noul("Is it?")})


@pytest.mark.parametrize(
    "sent", [b"<html>", b"[]", b"{}", b'{"answers": 7}', b'{"answers": [{"type": "predicate"}]}', b'{"answers": [5]}']
)
def test_what_is_no_decisions_reply_fails_its_request_alone(sent: bytes) -> None:
    transport = DecisionsTransport(httpx.MockTransport(lambda _: httpx.Response(200, content=sent)))
    with (
        Client("http://server", transport=transport, retries=0) as client,
        pytest.raises(ServerError, match="not one of the Decisions dialect"),
    ):
        client.decide("s", {"q": Noul("Is it?")})


def test_decisions_bodies_ask_the_same() -> None:
    body = {
        "model": "m",
        "state": {"a": [1]},
        "images": ["data:image/png;base64,AA=="],
        "x_reading": "independent",
        "questions": {
            "n": {"type": "noul", "instructions": "Is it?", "criteria": {"true": "it is", "false": None}},
            "c": {"type": "choice", "criteria": {"a": None, "b": {"deep": 1}}},
            "l": {"type": "choice", "criteria": ["a", "b"]},
            "s": {"type": "score", "instructions": ["How?"], "criteria": ["low", {"h": 1}]},
        },
    }
    call = parse(decisions_body(body))
    asked = call.request.questions
    assert (asked["n"].instructions, asked["c"].criteria["b"]) == ("Is it?\ntrue: it is", '{"deep": 1}')
    assert asked["s"].option_ids == ("0", "1") and asked["l"].option_ids == ("a", "b")
    assert call.request.reading == "independent" and len(call.request.images) == 1
    given = {
        "n": NoulAnswer(0.25),
        "c": ChoiceAnswer("b", {"a": 0.4, "b": 0.6}, 0.2),
        "l": ChoiceAnswer("a", {"a": 0.7, "b": 0.3}, 0.4),
        "s": ScoreAnswer(0.5, (0.5, 0.5), ("low", '{"h": 1}'), 0.0),
    }
    answers = Answers(given, model="m", reading="independent", input_tokens=3)
    found = systemone_reply(reply(call, answers), body["questions"])["answers"]
    assert found["n"] == {"type": "noul", "noul": 0.25}
    assert found["c"] == {"type": "choice", "choice": "b", "probabilities": {"a": 0.4, "b": 0.6}, "confidence": 0.2}
    assert found["s"]["legend"] == {"0": "low", "1": {"h": 1}} and found["s"]["probabilities"] == {"0": 0.5, "1": 0.5}
    refused = {"answers": [{"type": "refusal", "name": "n"}], "model": "m"}
    assert systemone_reply(refused, {"n": body["questions"]["n"]})["answers"] == {}


def test_answers_that_are_none() -> None:
    choice = Choice("?", ["a", "b"])
    assert probabilities(choice, ChoiceAnswer("b", {"b": 3.0, "a": 1.0}, 1.0)) == (0.25, 0.75)
    for broken in (None, ChoiceAnswer("a", {"a": 1.0}, 1.0), ChoiceAnswer("a", {"a": float("nan"), "b": 1.0}, 1.0)):
        with pytest.raises(ServerError):
            probabilities(choice, broken)
    with pytest.raises(ServerError):
        probabilities(Noul("?"), NoulAnswer(1.5))
    with pytest.raises(ServerError):
        probabilities(Score("?", ["a"] * 3), ScoreAnswer(0.0, (1.0,), ("a",), 1.0))


def test_baselines(records: Records, ask: Any) -> None:
    asked = records(200)
    uniform = ask(asked, Prior(()))[1]
    assert uniform[0].answers["queue"] == (0.25,) * 4
    prior = ask(asked, Prior(asked))[1]
    true = sum(record.labels["refund"] == 0 for record in asked)
    assert prior[0].answers["refund"][0] == pytest.approx((true + 1) / 202)
