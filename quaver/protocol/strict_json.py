"""JSON as this server reads it: strict about everything that Python's reader lets through.

Numbers come out as ``json`` gives them, because their text form goes into the prompt.
"""

from __future__ import annotations

import json
import math
from typing import Any

from quaver.errors import BadRequest
from quaver.questions import Json

#: Deeper values meet the recursion limits of every reader after this one.
MAX_DEPTH = 100

#: Python refuses to print longer integers, so none of them could be put into a prompt.
MAX_INTEGER_DIGITS = 4300

Where = tuple[str | int, ...]

_CONTAINERS = (dict, list, tuple)
_SMALL = 1 << 1024


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
    if not isinstance(value, _CONTAINERS):
        _check_scalar(value, ())
        return
    # A stack of our own: recursion would end at the very depth that is to be refused. It holds containers
    # alone, and paths are made for them alone, because a body may hold millions of numbers.
    todo: list[tuple[Any, Where]] = [(value, ())]
    while todo:
        item, where = todo.pop()
        if len(where) >= MAX_DEPTH:
            raise BadRequest(f"{place(where[:2])} is nested deeper than {MAX_DEPTH} levels", where[:2])
        if isinstance(item, dict):
            _check_keys(item, where)
        for step, child in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(child, _CONTAINERS):
                todo.append((child, (*where, step)))
            elif not _plain(child):
                _check_scalar(child, (*where, step))


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


def _plain(item: object) -> bool:
    """Whether ``item`` is fine at first sight, which nearly everything is."""
    if isinstance(item, str):
        return item.isascii()
    if isinstance(item, float):
        return math.isfinite(item)
    return item is None or (isinstance(item, int) and -_SMALL < item < _SMALL)


def _check_keys(item: dict[Any, Any], where: Where) -> None:
    if isinstance(item, _Repeated):
        raise BadRequest(f"{place(where)} has the key {_quoted(item.key)} twice", where)
    for key in item:
        if not isinstance(key, str):
            raise BadRequest(f"{place(where)} has the key {key!r}; keys must be text", where)
        if not key.isascii():
            _check_scalar(key, (*where, key))


def _check_scalar(item: object, where: Where) -> None:
    """Raise for a scalar that JSON or a prompt cannot hold."""
    if isinstance(item, str):
        try:
            item.encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(item[error.start]):04x}"
            raise BadRequest(f"{place(where)} has a lone surrogate {half}; it is half a character", where) from None
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise BadRequest(f"{place(where)} is {item}; JSON numbers are finite", where)
    elif isinstance(item, int):
        if item.bit_length() > MAX_INTEGER_DIGITS * math.log2(10):
            raise BadRequest(f"{place(where)} has more than {MAX_INTEGER_DIGITS} digits", where)
    elif item is not None:
        raise BadRequest(f"{place(where)} is a {type(item).__name__}, which JSON cannot hold", where)


def _quoted(step: str | int) -> str:
    return excerpt(step)


def _safe(step: str | int) -> str:
    """A step of a path, short, and printable even when it holds a lone surrogate."""
    text = str(step)[:60]
    return text if text.isprintable() else text.encode("ascii", "backslashreplace").decode()
