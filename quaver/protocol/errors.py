"""Bodies of errors, worded so that every client finds what it looks for.

A System One error carries ``detail`` (a list for a body that breaks a rule, else an object) and, beside it,
the ``error`` object of OpenAI. A Decisions error carries ``error`` alone.
"""

from __future__ import annotations

from quaver.protocol.replies import ErrorReply
from quaver.protocol.strict_json import Where
from quaver.protocol.types import Dialect


def invalid_body(dialect: Dialect, code: str, message: str, where: Where) -> ErrorReply:
    """The body breaks a rule at ``where``; ``message`` names the place too, because clients drop ``loc``."""
    error = _error("invalid_request_error", code, message, where)
    if dialect == "decisions":
        return error
    return {"detail": [{"type": code, "loc": ["body", *where], "msg": message}], **error}


def refused(dialect: Dialect, kind: str, code: str, message: str, where: Where = ()) -> ErrorReply:
    """The request is refused for another reason than a rule of the body: key, load, model, size."""
    # api_usage_error is TypeSafe's word, and what OpenAI's clients know says the same. All other kinds are shared.
    error = _error("invalid_request_error" if kind == "api_usage_error" else kind, code, message, where)
    if dialect == "decisions":
        return error
    return {"detail": {"error_type": kind, "message": message}, **error}


def _error(kind: str, code: str, message: str, where: Where) -> ErrorReply:
    # OpenAI's clients show param, and a path in it must be one text.
    param = ".".join(str(step) for step in where) or None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
