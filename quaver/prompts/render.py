"""JSON values as the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from quaver.errors import BadRequest
from quaver.questions import Json


def render(value: Json) -> str:
    """Text as it is, any other JSON value as compact JSON with sorted keys, numbers as Python writes them.

    Raises BadRequest for what JSON cannot hold. Source: ``render`` of the Clef releases' code.
    """
    return value if isinstance(value, str) else json_text(value, separators=(",", ":"), sort_keys=True)


def words(value: Json) -> str:
    """A value as the model reads it; nothing where there is none."""
    return "" if value is None else render(value)


def json_text(value: Json, **style: Any) -> str:
    """``value`` as JSON, laid out as ``json.dumps`` does for ``style``. Raises BadRequest for what JSON cannot hold."""
    try:
        # A body from the wire has been checked; this is for callers in this process.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain, **style)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"a {type(value).__name__} cannot be written as JSON: {error}") from error


def _plain(value: object) -> dict[str, Json]:
    """Mappings other than dicts, which json does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")
