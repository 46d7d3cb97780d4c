"""JSON Schemas of the bodies and replies, for a served OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from quaver.protocol.decisions import DecisionsBody
from quaver.protocol.replies import DecisionsReply, SystemOneReply
from quaver.protocol.systemone import SystemOneBody

REF = "#/components/schemas/{model}"


def component_schemas() -> dict[str, Any]:
    """Schemas by name: ``SystemOneBody``, ``SystemOneReply``, ``DecisionsBody``, ``DecisionsReply`` and their parts."""
    shapes: list[TypeAdapter[Any]] = [
        TypeAdapter(SystemOneBody),
        TypeAdapter(SystemOneReply),
        TypeAdapter(DecisionsBody),
        TypeAdapter(DecisionsReply),
    ]
    _, schema = TypeAdapter.json_schemas([(n, "validation", s) for n, s in enumerate(shapes)], ref_template=REF)
    named: dict[str, Any] = schema["$defs"]
    return named
