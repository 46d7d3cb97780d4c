"""JSON values as the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping

from quaver.errors import BadRequest
from quaver.questions import Json


def render(value: Json) -> str:
    """Text as it is, any other JSON value as compact JSON with sorted keys, numbers as Python writes them.

    Raises BadRequest for what JSON cannot hold. Source: ``render`` of the Clef releases' code.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"a {type(value).__name__} cannot be written as JSON: {error}") from error


def _plain(value: object) -> dict[str, Json]:
    """Read-only mappings, which json does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")
