"""Questions from flags and files become the questions of a body."""

import json
from pathlib import Path

import pytest

from quaver.cli.questions import from_file, from_flags
from quaver.errors import BadRequest


def test_flags() -> None:
    asked = from_flags(
        ["Is it late?"],
        ["Where to? = billing | tech: bugs: and outages | other"],
        ["Is a = b likely? = no | maybe | yes"],
    )
    assert asked == {
        "Is it late?": {"type": "noul", "instructions": "Is it late?"},
        "Where to?": {
            "type": "choice",
            "instructions": "Where to?",
            "criteria": {"billing": None, "tech": "bugs: and outages", "other": None},
        },
        "Is a = b likely?": {
            "type": "score",
            "instructions": "Is a = b likely?",
            "criteria": ["no", "maybe", "yes"],
        },
    }


@pytest.mark.parametrize(
    ("choices", "scores", "message"),
    [
        (["Where to?"], [], "--choice 'Where to?' does not have the form: QUESTION = option"),
        (["Where to? = a | "], [], "does not have the form"),
        (["Where to? = a | b | a"], [], "names an option twice"),
        ([], ["= a | b"], "--score '= a | b' does not have the form"),
        (["q = a | b"], ["q = 1 | 2"], "question 'q' is asked twice"),
    ],
)
def test_malformed_flags(choices: list[str], scores: list[str], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        from_flags([], choices, scores)
    assert message in str(refused.value)


QUESTIONS = {"late": {"type": "noul", "instructions": "Is it late?"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.json", json.dumps(QUESTIONS)),
        ("q.yaml", "late:\n  type: noul\n  instructions: Is it late?\n"),
        ("body.json", json.dumps({"state": "x", "questions": QUESTIONS})),
    ],
)
def test_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert from_file(tmp_path / name) == QUESTIONS


@pytest.mark.parametrize("text", ["[1, 2]", "{", "", '"words"'])
def test_unreadable_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(text)
    with pytest.raises(BadRequest, match=r"q\.json"):
        from_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"none\.yaml"):
        from_file(tmp_path / "none.yaml")
