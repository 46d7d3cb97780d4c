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


def unmarked(record: dict[str, Any]) -> dict[str, Any]:
    """Without the digest of what was asked, of which it must have one."""
    assert len(record["asked"]) == 16
    return {name: value for name, value in record.items() if name != "asked"}


def test_every_line_is_answered_in_order(files: tuple[Path, Path]) -> None:
    ask = Asker()
    assert run(*files, {"q": {"type": "noul"}}, ask) == 2
    assert [r["line"] for r in records(files[1])] == [*range(1, 41), 42]
    assert records(files[1])[0]["reply"] == {"heard": "state 1"}
    assert unmarked(records(files[1])[39]) == {"line": 40, "error": "this state is broken"}
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


@pytest.mark.parametrize("change", ["line", "questions", "fewer lines"])
def test_answers_to_something_else_are_neither_taken_nor_lost(tmp_path: Path, change: str) -> None:
    lines, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text('{"state": "one"}\n{"state": "broken"}\n{"state": "three"}\n')
    questions = {"q": {"type": "noul"}}
    assert run(lines, out, questions, Asker()) == 1
    before = out.read_text()
    # A line that failed may be mended; the others must be what was answered.
    lines.write_text('{"state": "one"}\n{"state": "mended"}\n{"state": "three"}\n')
    if change == "line":
        lines.write_text(lines.read_text().replace("three", "3"))
    elif change == "fewer lines":
        lines.write_text('{"state": "one"}\n{"state": "mended"}\n')
    other = {"q": {"type": "noul", "instructions": "Is it?"}} if change == "questions" else questions
    line = 1 if change == "questions" else 3
    with pytest.raises(BadRequest, match=rf"out\.jsonl answers line {line} of .*in\.jsonl as it was before"):
        run(lines, out, other, Asker())
    assert out.read_text() == before
    lines.write_text('{"state": "one"}\n{"state": "mended"}\n{"state": "three"}\n')
    ask = Asker()
    assert run(lines, out, questions, ask) == 0
    assert [body["state"] for body in ask.bodies] == ["mended"]


def test_questions_of_a_line_win(tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps({"state": "s", "questions": {"own": {"type": "noul"}}}))
    ask = Asker()
    run(lines, tmp_path / "out.jsonl", {"other": {"type": "noul"}}, ask)
    assert ask.bodies == [{"questions": {"own": {"type": "noul"}}, "state": "s"}]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    # JSON strings may hold these as they are (RFC 8259, section 7); Python's splitlines cuts at them.
    separators = "\u2028 \u2029 \x85 end"
    states = [f"one{separators}", "two"]
    lines, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    body = "".join(json.dumps({"state": state}, ensure_ascii=False) + "\r\n" for state in states)
    lines.write_bytes(b"\xef\xbb\xbf" + body.encode())
    assert run(lines, out, None, Asker()) == 0
    answered = [json.loads(line) for line in out.read_bytes().split(b"\n") if line]
    assert list(map(unmarked, answered)) == [
        {"line": n, "reply": {"heard": state}} for n, state in enumerate(states, 1)
    ]
    again = Asker()
    assert run(lines, out, None, again) == 0
    assert again.bodies == []


@pytest.mark.parametrize("content", ['{"state": "my own data"}\n', '{"line": 1}\n', "[1]\n", '"words"\n'])
def test_a_file_of_something_else_is_not_touched(tmp_path: Path, content: str) -> None:
    lines, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text('{"state": "s"}\n')
    out.write_text(content)
    with pytest.raises(BadRequest, match=r"out\.jsonl has lines that are no answers"):
        run(lines, out, None, Asker())
    assert out.read_text() == content
    with pytest.raises(BadRequest, match="no answers"):
        run(lines, lines, None, Asker())
    assert lines.read_text() == '{"state": "s"}\n'


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"none\.jsonl cannot be read"):
        run(tmp_path / "none.jsonl", tmp_path / "out.jsonl", None, Asker())
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadRequest, match="binary cannot be read"):
        run(tmp_path / "binary", tmp_path / "out.jsonl", None, Asker())
