"""JSON as this server reads it: strict about everything that Python's reader lets through.

Numbers come out as ``json`` gives them, because their text form goes into the prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from quaver.errors import BadRequest
from quaver.questions import Json

#: Deeper values meet the recursion limits of every reader after this one.
MAX_DEPTH = 100

#: Python refuses to print longer integers, so none of them could be put into a prompt.
MAX_INTEGER_DIGITS = 4300

Where = tuple[str | int, ...]


class _Repeated(dict[str, Any]):
    """An object whose text names ``key`` twice; kept apart so that ``check`` can say where it stands."""

    def __init__(self, members: dict[str, Any], key: str) -> None:
        super().__init__(members)
        self.key = key


def loads(data: bytes) -> Json:
    """The JSON value in ``data``; BadRequest for anything that is not strict, interoperable JSON."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
    except RecursionError:
        raise BadRequest(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except ValueError:
        # The only other thing that json.loads objects to.
        raise BadRequest(f"the body has an integer of more than {MAX_INTEGER_DIGITS} digits") from None
    check(value)
    return value


def check(value: object) -> None:
    """Raise BadRequest, with the place, for what cannot be sent as JSON text or put into a prompt."""
    todo: list[tuple[Any, Where]] = [(value, ())]
    while todo:
        item, where = todo.pop()
        if isinstance(item, str):
            _check_text(item, where)
        elif isinstance(item, Mapping):
            _check_keys(item, where)
            todo.extend((child, (*where, key)) for key, child in item.items())
        elif isinstance(item, (list, tuple)):
            # A stack of our own: recursion would end at the very depth that is to be refused.
            todo.extend((child, (*where, index)) for index, child in enumerate(item))
        else:
            _check_scalar(item, where)
        if len(where) > MAX_DEPTH:
            raise BadRequest(f"{place(where[:2])} is nested deeper than {MAX_DEPTH} levels", where[:2])


def place(where: Where) -> str:
    """``where`` for people: ``question "urgency", criteria.0``; ``the body`` for the empty path."""
    if not where:
        return "the body"
    if where[0] == "questions" and len(where) > 1:
        rest = ".".join(_safe(step) for step in where[2:])
        return f"question {_quoted(where[1])}" + (f", {rest}" if rest else "")
    return ".".join(_safe(step) for step in where)


def excerpt(value: object, most: int = 60) -> str:
    """``value`` as short JSON for a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return _Repeated(members, twice)


def _check_text(text: str, where: Where) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            surrogate = f"\\u{ord(text[error.start]):04x}"
            raise BadRequest(
                f"{place(where)} has a lone surrogate {surrogate}; it is half a character", where
            ) from None


def _check_keys(item: Mapping[Any, Any], where: Where) -> None:
    if isinstance(item, _Repeated):
        raise BadRequest(f"{place(where)} has the key {_quoted(item.key)} twice", where)
    for key in item:
        if not isinstance(key, str):
            raise BadRequest(f"{place(where)} has the key {key!r}; keys must be text", where)
        _check_text(key, (*where, key))


def _check_scalar(item: object, where: Where) -> None:
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, float):
        if not math.isfinite(item):
            raise BadRequest(f"{place(where)} is {item}; JSON numbers are finite", where)
    elif isinstance(item, int):
        if item.bit_length() > MAX_INTEGER_DIGITS * math.log2(10):
            raise BadRequest(f"{place(where)} has more than {MAX_INTEGER_DIGITS} digits", where)
    else:
        raise BadRequest(f"{place(where)} is a {type(item).__name__}, which JSON cannot hold", where)


def _quoted(step: str | int) -> str:
    return excerpt(step)


def _safe(step: str | int) -> str:
    """A step of a path, short, and printable even when it holds a lone surrogate."""
    text = str(step)[:60]
    return text if text.isprintable() else text.encode("ascii", "backslashreplace").decode()
