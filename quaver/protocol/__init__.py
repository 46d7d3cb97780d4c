"""The wire: two dialects of request and reply, error bodies, the models list. The only room that knows pydantic."""

from quaver.protocol.decisions import DecisionsBody, DecisionsCall
from quaver.protocol.dialect import Call, dialect_of, parse, parse_wire, reply
from quaver.protocol.errors import invalid_body, refused
from quaver.protocol.media_slots import local_media
from quaver.protocol.models import ALIASES, check_model, models_list
from quaver.protocol.schemas import component_schemas
from quaver.protocol.strict_json import loads
from quaver.protocol.systemone import SystemOneBody, SystemOneCall
from quaver.protocol.types import Attachments, Dialect

__all__ = [
    "ALIASES",
    "Attachments",
    "Call",
    "DecisionsBody",
    "DecisionsCall",
    "Dialect",
    "SystemOneBody",
    "SystemOneCall",
    "check_model",
    "component_schemas",
    "dialect_of",
    "invalid_body",
    "loads",
    "local_media",
    "models_list",
    "parse",
    "parse_wire",
    "refused",
    "reply",
]
