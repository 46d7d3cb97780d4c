"""The wire: two dialects of request and reply, error bodies, the models list. The only room that knows pydantic."""

from quaver.protocol.batch import MAX_STATES, BatchCall, parse_batch
from quaver.protocol.decisions import DecisionsBody, DecisionsCall
from quaver.protocol.dialect import Call, dialect_of, parse, parse_wire, reply
from quaver.protocol.errors import invalid_body, refused
from quaver.protocol.media_slots import local_media
from quaver.protocol.models import ALIASES, check_model, models_list
from quaver.protocol.replies import BatchError, ErrorReply
from quaver.protocol.schemas import component_schemas
from quaver.protocol.strict_json import loads
from quaver.protocol.systemone import SystemOneBody, SystemOneCall
from quaver.protocol.types import Attachments, Dialect

__all__ = [
    "ALIASES",
    "MAX_STATES",
    "Attachments",
    "BatchCall",
    "BatchError",
    "Call",
    "DecisionsBody",
    "DecisionsCall",
    "Dialect",
    "ErrorReply",
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
    "parse_batch",
    "parse_wire",
    "refused",
    "reply",
]
