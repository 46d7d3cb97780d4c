"""Text, JSON Lines and YAML as people hand them over. All raise BadRequest with the file's name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from quaver.errors import BadRequest


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without the byte order mark that Windows' editors put in front."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error


def lines_of(text: str) -> list[tuple[int, str]]:
    """Numbers, from 1, and texts of the lines that are not blank.

    Only a newline ends a line of JSON Lines: ``str.splitlines`` would also cut at U+2028, U+0085 and others, which
    JSON strings may hold as they are (RFC 8259, section 7).
    """
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def json_lines(path: Path) -> Iterator[Any]:
    """The values of a JSON Lines file; the first line that is not JSON is named."""
    for number, line in lines_of(read_text(path)):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise BadRequest(f"{path}, line {number}: {line[:60]!r} is not JSON: {error}") from error


def written_lines(path: Path) -> list[Any]:
    """The values of a JSON Lines file that was appended to; a line that an interrupt left unfinished is dropped."""
    values = []
    for _, line in lines_of(read_text(path)):
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    return values


def end_line(path: Path) -> None:
    """Ends a last line that was left unfinished, so that what is appended next begins one of its own."""
    if not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as sink:
            sink.write("\n")


def read_data(path: Path) -> Any:
    """The value of a JSON file by its name, of a YAML file otherwise; what YAML has beyond JSON, as dates, is text."""
    text = read_text(path)
    try:
        # YAML's parser takes most of JSON, but neither tabs between values nor surrogate pairs.
        return json.loads(text) if path.suffix == ".json" else yaml.load(text, _Json)
    except (ValueError, yaml.YAMLError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error


class _Json(yaml.SafeLoader):
    """YAML with the scalars that JSON has too (YAML 1.2, 10.2), and keys that are text.

    PyYAML's own are those of YAML 1.1, where ``no`` is false, ``10:30`` is 630, ``1e5`` is a word and
    ``2026-01-31`` a date: an option of that name would become another one.
    """

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (as the base class declares it)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key must be text", key.start_mark)
        return {key.value: self.construct_object(value, deep) for key, value in node.value}


for _tag, _rule, _first in (
    ("merge", "<<", "<"),
    ("null", "~|null|", ["~", "n", ""]),
    ("bool", "true|false", "tf"),
    ("int", "[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Json.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_rule})$"), list(_first))
