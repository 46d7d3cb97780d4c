"""One entrance for both dialects: the body decides which one it speaks, not the path it came by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaver.errors import BadRequest
from quaver.protocol import decisions, media_slots, strict_json, systemone
from quaver.protocol.decisions import DecisionsCall
from quaver.protocol.systemone import SystemOneCall
from quaver.protocol.types import Attachments, Dialect, require_object
from quaver.questions import Answers, Json

Call = SystemOneCall | DecisionsCall


def parse(body: Mapping[str, Any]) -> Call:
    """A body made in this process. Its media may also be bytes, a ``Path`` or the path of a file as text."""
    require_object(body)
    # Bytes and paths in the media lists are no JSON, and are looked at where media are read.
    strict_json.check({name: value for name, value in body.items() if name not in media_slots.LISTS})
    if dialect_of(body) == "decisions":
        return decisions.parse(body, local=True)
    return systemone.parse(body, local=True)


def parse_wire(body: Json, attachments: Attachments | None = None) -> Call:
    """A body that came from elsewhere, read by ``strict_json.loads``. Media are text or ``attachments`` only."""
    require_object(body)
    if dialect_of(body) == "systemone":
        return systemone.parse(body, attachments)
    if attachments:
        raise BadRequest("a decisions body has no place for form parts; put images into input_image parts")
    return decisions.parse(body)


def reply(call: Call, answers: Answers) -> dict[str, Any]:
    """The reply to ``call`` in its dialect."""
    return dict(call.reply(answers))


def dialect_of(body: Json, otherwise: Dialect = "systemone") -> Dialect:
    """A list of questions or an ``input`` is a decisions body, a map of questions or a ``state`` a System One body."""
    if not isinstance(body, Mapping):
        return otherwise
    questions = body.get("questions")
    if isinstance(questions, list):
        return "decisions"
    if isinstance(questions, Mapping) or "state" in body:
        return "systemone"
    return "decisions" if "input" in body else otherwise
