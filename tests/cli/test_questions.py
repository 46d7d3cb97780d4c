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


def test_times_addresses_and_equations_are_options() -> None:
    asked = from_flags([], ["When? = 10:30 | http://host: the site | other: a = b"], [])
    assert asked["When?"]["criteria"] == {"10:30": None, "http://host": "the site", "other": "a = b"}


def test_yaml_means_what_json_means(tmp_path: Path) -> None:
    """By YAML 1.2 these are the words that they look like; YAML 1.1 makes booleans, numbers and dates of them."""
    path = tmp_path / "q.yaml"
    path.write_text(
        "late: {type: noul, criteria: {true: it is, false: it is not}}\n"
        "who:\n  type: choice\n  criteria: {no: Norway, on: Ontario, 7: seven, 10:30: half past}\n"
        "how: {type: score, criteria: [off, 2026-01-31, 12:30, 1e2, 1.5, true, null]}\n"
    )
    assert from_file(path) == {
        "late": {"type": "noul", "criteria": {"true": "it is", "false": "it is not"}},
        "who": {"type": "choice", "criteria": {"no": "Norway", "on": "Ontario", "7": "seven", "10:30": "half past"}},
        "how": {"type": "score", "criteria": ["off", "2026-01-31", "12:30", 100.0, 1.5, True, None]},
    }


def test_what_a_windows_editor_puts_in_front_is_no_part_of_a_file(tmp_path: Path) -> None:
    for name in ("q.json", "q.yaml"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + json.dumps(QUESTIONS, indent="\t").replace("\t", " ").encode())
        assert from_file(tmp_path / name) == QUESTIONS


def test_json_may_hold_tabs_and_surrogate_pairs(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text('{\t"smile \\ud83d\\ude00":\t{"type":\t"noul"}}')
    assert from_file(tmp_path / "q.json") == {"smile \U0001f600": {"type": "noul"}}
