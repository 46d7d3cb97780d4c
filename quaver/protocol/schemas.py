"""JSON Schemas of the bodies and replies, for a served OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from quaver.protocol.batch import BatchBody
from quaver.protocol.decisions import DecisionsBody
from quaver.protocol.replies import BatchReply, DecisionsReply, ErrorReply, SystemOneReply
from quaver.protocol.systemone import SystemOneBody

REF = "#/components/schemas/{model}"


def component_schemas() -> dict[str, Any]:
    """Schemas by name: ``...Body`` and ``...Reply`` of SystemOne, Batch and Decisions, ``ErrorReply``, their parts."""
    shapes: list[TypeAdapter[Any]] = [
        TypeAdapter(SystemOneBody),
        TypeAdapter(SystemOneReply),
        TypeAdapter(BatchBody),
        TypeAdapter(BatchReply),
        TypeAdapter(DecisionsBody),
        TypeAdapter(DecisionsReply),
        TypeAdapter(ErrorReply),
    ]
    _, schema = TypeAdapter.json_schemas([(n, "validation", s) for n, s in enumerate(shapes)], ref_template=REF)
    named: dict[str, Any] = schema["$defs"]
    return named
