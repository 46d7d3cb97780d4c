"""Records from every kind of source, and what is wrong with them, with the place."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quaver.errors import BadRequest
from quaver.evaluate.records import Record, digest, label_index, read_records
from quaver.questions import Choice, Noul, Score

QUESTIONS = {
    "q": {"type": "noul", "instructions": "Is it?"},
    "c": {"type": "choice", "criteria": {"a": None, "b": "B"}},
}


def write(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def test_jsonl_with_own_questions_and_with_shared_ones(tmp_path: Path) -> None:
    own = {"state": "s", "questions": {"q": {"type": "score", "criteria": ["low", "high"]}}, "labels": {"q": "high"}}
    source = write(tmp_path / "r.jsonl", own, "", {"id": "x", "state": ["s"], "labels": {"c": "b"}})
    first, second = read_records(source, QUESTIONS)
    assert (first.id, first.labels, first.questions["q"]) == ("1", {"q": 1}, Score(None, ("low", "high")))
    assert (second.id, second.labels, list(second.questions)) == ("x", {"c": 1}, ["q", "c"])


def test_csv_with_a_state_column_and_without(tmp_path: Path) -> None:
    with_state = write(tmp_path / "a.csv", "id,state,q,c", "r1,hello,true,a", "r2,bye,,b")
    a, b = read_records(with_state, QUESTIONS)
    assert (a.state, a.labels) == ("hello", {"q": 0, "c": 0})
    assert (b.id, b.labels) == ("r2", {"c": 1})
    without = write(tmp_path / "b.csv", "city,age,q", "Oslo,3,False")
    assert read_records(without, QUESTIONS)[0].state == {"city": "Oslo", "age": "3"}


def test_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "made_up_records.py",
        "def rows():",
        "    for i in range(5):",
        "        yield {'state': i, 'labels': {'q': i > 2}}",
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = read_records("made_up_records:rows", QUESTIONS, limit=4)
    assert [record.labels["q"] for record in found] == [1, 1, 1, 0]
    sys.modules.pop("made_up_records")


def test_media_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"picture")
    source = write(tmp_path / "r.jsonl", {"state": "s", "labels": {"q": True}, "images": ["cat.png"]})
    record = read_records(source, QUESTIONS)[0]
    assert record.images == (tmp_path / "cat.png",)
    before = digest([record])
    (tmp_path / "cat.png").write_bytes(b"another")
    assert digest([record]) != before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "is not JSON"),
        ([{"labels": {}}], 'expected an object with "state" and "labels"'),
        ([{"state": "s", "labels": {"z": True}}], "'z' has a label or paraphrase and is not a question"),
        ([{"state": "s", "labels": {"c": "z"}}], "record 1: label 'z' is none of the options: a, b"),
        ([{"state": "s", "labels": {"q": "maybe"}}], "must be true or false"),
        ([{"id": "a", "state": "s", "labels": {}}] * 2, "record 2: the id 'a' appears twice"),
        ([], "has no records"),
        ([{"state": "s", "labels": {}}, {"state": "t", "labels": {}}], "no record has a label"),
    ],
)
def test_refusals(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_records(write(tmp_path / "r.jsonl", *lines), QUESTIONS)


@pytest.mark.parametrize("source", ["none.jsonl", "no_such_module:rows", "json:no_such_function", "none.csv"])
def test_sources_that_are_not_there(source: str) -> None:
    with pytest.raises(BadRequest, match=source.partition(":")[0]):
        read_records(source, QUESTIONS)


def test_labels() -> None:
    assert [label_index(Noul(), label) for label in (True, False, "true", " FALSE")] == [0, 1, 0, 1]
    assert label_index(Choice(None, {"x": None, "1": None}), 1) == 1
    assert [label_index(Score(None, ["bad", "good"]), label) for label in (1, "0", "good")] == [1, 0, 1]


def test_the_digest_moves_with_what_is_asked(records: Callable[[int], list[Record]]) -> None:
    one, two = records(2)
    whole = digest([one, two])
    assert whole == digest([one, two])
    assert whole != digest([two, one])
    assert whole != digest([replace(one, labels={}), two])
    reversed_options = Choice("Which desk?", dict.fromkeys(reversed(one.questions["queue"].option_ids)))
    assert whole != digest([replace(one, questions={**one.questions, "queue": reversed_options}), two])


def test_a_line_that_is_not_json_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"state": "s", "labels": {"q": true}}\n\n{"state": \n')
    with pytest.raises(BadRequest, match=r"r\.jsonl, line 3: .* is not JSON"):
        read_records(str(path), QUESTIONS)
    path.write_bytes(b"\xff\n")
    with pytest.raises(BadRequest, match=r"r\.jsonl cannot be read"):
        read_records(str(path), QUESTIONS)


def test_csv_cells_without_a_column_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("state,q\nhello,true\nhello, world,false\n")
    with pytest.raises(BadRequest, match="line 3: there are more cells than columns"):
        read_records(str(path), QUESTIONS)
