"""Batches answer every line, keep failures apart, and go on where they stopped."""

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from quaver.cli.batch import run
from quaver.errors import BadRequest


class Asker:
    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.broken: set[str] = {"broken"}

    def __call__(self, body: dict[str, Any]) -> Future[dict[str, Any]]:
        self.bodies.append(body)
        reply: Future[dict[str, Any]] = Future()
        if body["state"] in self.broken:
            reply.set_exception(BadRequest("this state is broken"))
        else:
            reply.set_result({"heard": body["state"]})
        return reply


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    lines = tmp_path / "in.jsonl"
    states = [*(f"state {n}" for n in range(1, 40)), "broken"]
    lines.write_text("".join(json.dumps({"state": s}) + "\n" for s in states) + "\nnot json\n")
    return lines, tmp_path / "out.jsonl"


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_every_line_is_answered_in_order(files: tuple[Path, Path]) -> None:
    ask = Asker()
    assert run(*files, {"q": {"type": "noul"}}, ask) == 2
    assert [r["line"] for r in records(files[1])] == [*range(1, 41), 42]
    assert records(files[1])[0]["reply"] == {"heard": "state 1"}
    assert records(files[1])[39] == {"line": 40, "error": "this state is broken"}
    assert "not JSON" in records(files[1])[40]["error"]
    assert ask.bodies[0] == {"state": "state 1", "questions": {"q": {"type": "noul"}}}


def test_a_second_run_asks_only_what_is_missing(files: tuple[Path, Path]) -> None:
    run(*files, None, Asker())
    lines = files[1].read_text().splitlines(keepends=True)
    files[1].write_text("".join(lines[:5]) + lines[5][:9])
    ask = Asker()
    ask.broken = set()
    assert run(*files, None, ask) == 1
    assert [body["state"] for body in ask.bodies] == [*(f"state {n}" for n in range(6, 40)), "broken"]
    answered = [r["line"] for r in records(files[1]) if "reply" in r]
    assert answered == list(range(1, 41))


def test_questions_of_a_line_win(tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps({"state": "s", "questions": {"own": {"type": "noul"}}}))
    ask = Asker()
    run(lines, tmp_path / "out.jsonl", {"other": {"type": "noul"}}, ask)
    assert ask.bodies == [{"questions": {"own": {"type": "noul"}}, "state": "s"}]
