"""Questions from the command line: short flags, or a JSON or YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quaver.errors import BadRequest
from quaver.evaluate.files import read_data

FILE_HELP = "JSON or YAML file: question id to {type, instructions, criteria}, as in a /v1/systemone body."


def from_flags(nouls: Sequence[str], choices: Sequence[str], scores: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Flags to the questions of a body. A question's words are its id.

    ``choices`` look like ``Where should it go? = billing | tech: bugs and outages | other``;
    ``scores`` like ``How angry? = calm | annoyed | furious``, lowest first.
    """
    questions: dict[str, dict[str, Any]] = {}
    for text in nouls:
        _add(questions, text.strip(), {"type": "noul", "instructions": text.strip()})
    for text in choices:
        words, parts = _split(text, "--choice", "QUESTION = option | option: its description | ...")
        # Only a colon with a space behind it begins a description: options may be times or addresses.
        pairs = [part.partition(": ") for part in parts]
        criteria = {name.strip(): description.strip() or None for name, _, description in pairs}
        if len(criteria) < len(pairs):
            raise BadRequest(f"--choice {text!r} names an option twice; options must be unique")
        _add(questions, words, {"type": "choice", "instructions": words, "criteria": criteria})
    for text in scores:
        words, levels = _split(text, "--score", "QUESTION = lowest level | next level | ...")
        _add(questions, words, {"type": "score", "instructions": words, "criteria": levels})
    return questions


def from_file(path: Path) -> dict[str, Any]:
    """The questions of a JSON or YAML file; a whole body with a ``questions`` key is accepted too."""
    content = read_data(path)
    if isinstance(content, dict) and isinstance(content.get("questions"), dict):
        content = content["questions"]
    if not isinstance(content, dict) or not content:
        raise BadRequest(f"{path}: expected question ids with their questions, see --help")
    return content


def _add(questions: dict[str, dict[str, Any]], name: str, question: dict[str, Any]) -> None:
    if name in questions:
        raise BadRequest(f"question {name!r} is asked twice; give questions of their own ids in a file")
    questions[name] = question


def _split(text: str, flag: str, form: str) -> tuple[str, list[str]]:
    # The last equals sign of the first part: both a question and later descriptions may have some of their own.
    first, *others = text.split("|")
    words, equals, option = first.rpartition("=")
    parts = [part.strip() for part in (option, *others)]
    if not equals or not words.strip() or not all(parts):
        raise BadRequest(f"{flag} {text!r} does not have the form: {form}")
    return words.strip(), parts
