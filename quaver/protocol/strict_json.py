"""JSON as this server reads it: strict about everything that Python's reader lets through.

Numbers come out as ``json`` gives them, because their text form goes into the prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from quaver.errors import BadRequest
from quaver.questions import Json

#: Deeper values meet the recursion limits of every reader after this one.
MAX_DEPTH = 100

#: Python refuses to print longer integers, so none of them could be put into a prompt.
MAX_INTEGER_DIGITS = 4300

Where = tuple[str | int, ...]

_CONTAINERS = (dict, list, tuple)
#: Below this the length of an integer need not be asked for, which takes a call for every number.
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
    # Neither recursion, which would end at the very depth that is to be refused, nor a list of what is still to
    # be seen: a body of 30 MB may hold ten million containers. One iterator is open for each level.
    path: list[str | int] = []
    levels = [_members(value, path)]
    while levels:
        for step, child in levels[-1]:
            if isinstance(child, _CONTAINERS):
                path.append(step)
                if len(path) >= MAX_DEPTH:
                    top = tuple(path[:2])
                    raise BadRequest(f"{place(top)} is nested deeper than {MAX_DEPTH} levels", top)
                levels.append(_members(child, path))
                break
            if not _plain(child):
                _check_scalar(child, (*path, step))
        else:
            levels.pop()
            del path[-1:]


def place(where: Where) -> str:
    """``where`` for people: ``question "urgency", criteria.0``; ``the body`` for the empty path."""
    if not where:
        return "the body"
    if where[0] == "questions" and len(where) > 1:
        rest = ".".join(_safe(step) for step in where[2:])
        return f"question {excerpt(where[1])}" + (f", {rest}" if rest else "")
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


def _members(container: Any, path: Sequence[str | int]) -> Iterator[tuple[Any, Any]]:
    """Steps and children of a dict or list that stands at ``path``; BadRequest for keys that cannot be."""
    if not isinstance(container, dict):
        return iter(enumerate(container))
    where = tuple(path)
    if isinstance(container, _Repeated):
        raise BadRequest(f"{place(where)} has the key {excerpt(container.key)} twice", where)
    for key in container:
        if not isinstance(key, str):
            raise BadRequest(f"{place(where)} has the key {key!r}; keys must be text", where)
        if not key.isascii():
            _check_scalar(key, (*where, key))
    return iter(container.items())


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


def _safe(step: str | int) -> str:
    """A step of a path, short, and printable even when it holds a lone surrogate."""
    text = str(step)[:60]
    return text if text.isprintable() else text.encode("ascii", "backslashreplace").decode()
