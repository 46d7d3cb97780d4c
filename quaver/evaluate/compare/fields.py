"""Objects with known fields only, and JSON pointers into what servers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaver.errors import BadRequest
from quaver.questions import Json


class Missing:
    """What a pointer finds where there is nothing; not None, which a server may say."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


def known(value: Json, where: str, required: Mapping[str, type], optional: Mapping[str, type]) -> dict[str, Any]:
    """``value`` as an object that has all ``required`` fields, no unknown ones, each of its type."""
    if not isinstance(value, Mapping):
        raise BadRequest(f"{where} must be an object")
    types = {**required, **optional}
    for name, content in value.items():
        if name not in types:
            raise BadRequest(f"{where}: {name!r} is not known; it takes {', '.join(types)}")
        wanted = (int, float) if types[name] is float else types[name]
        if types[name] is not object and (
            not isinstance(content, wanted) or (isinstance(content, bool) and types[name] is not bool)
        ):
            raise BadRequest(f"{where}: {name} must be of type {types[name].__name__}, got {content!r}")
    missing = [name for name in required if name not in value]
    if missing:
        raise BadRequest(f"{where}: {missing[0]} is required")
    return dict(value)


def point(document: Json, pointer: str) -> Json:
    """What a JSON pointer (RFC 6901) leads to, or ``MISSING``.

    In a list of objects a step may also be the ``id``, ``name`` or ``model`` of the element that is meant.
    """
    found = document
    for raw in pointer.split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step, MISSING)
        elif isinstance(found, list):
            found = _element(found, step)
        else:
            return MISSING
    return found


def _element(items: list[Json], step: str) -> Json:
    named = [
        item
        for item in items
        if isinstance(item, Mapping) and step in (item.get("id"), item.get("name"), item.get("model"))
    ]
    if named:
        return named[0]
    return items[int(step)] if step.isdecimal() and int(step) < len(items) else MISSING
