"""The one table from exceptions to statuses, and the responses made of it."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from quaver.errors import (
    BadMedia,
    BadQuestion,
    BadRequest,
    EngineFault,
    Expired,
    Overloaded,
    QuaverError,
    TooLong,
    Unavailable,
    UnknownModel,
)
from quaver.protocol import Dialect, ErrorReply, invalid_body, refused

#: Exception, status in System One, status in Decisions, code. The first match counts, so kinds stand before what
#: they are kinds of. TypeSafe answers 422 where a body breaks a rule and 400 for the rest; OpenAI has 400 for both.
TABLE: tuple[tuple[type[QuaverError], int, int, str], ...] = (
    (UnknownModel, 400, 404, "model_not_found"),
    (TooLong, 400, 400, "context_length_exceeded"),
    (BadMedia, 400, 400, "bad_media"),
    (BadQuestion, 422, 400, "bad_question"),
    (BadRequest, 422, 400, "invalid_body"),
    (Overloaded, 429, 429, "overloaded"),
    (Unavailable, 503, 503, "unavailable"),
    (Expired, 504, 504, "expired"),
    (EngineFault, 500, 500, "engine_fault"),
    (QuaverError, 500, 500, "internal_error"),
)
KINDS = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}


class Json(JSONResponse):
    """JSON whose lone surrogates leave as the escapes they came as."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # The handler's name is also JSON's: a backslash, u and four digits.
        return text.encode("utf-8", "backslashreplace")


async def on_quaver_error(request: Request, error: Exception) -> JSONResponse:
    """Any QuaverError as a response in the dialect of the request."""
    status, body = error_body(error, dialect_of_request(request))
    return _response(request, status, body, _headers(error))


def error_body(error: Exception, dialect: Dialect) -> tuple[int, ErrorReply]:
    """The status and body that tell a caller of ``error``; of one outside the tree, only that it is in the log."""
    if not isinstance(error, QuaverError):
        # Its text may hold paths or what other callers sent.
        return 500, refused(dialect, "api_error", "internal_error", "internal error; see the server's log")
    system_one, decisions, code = next(row[1:] for row in TABLE if isinstance(error, row[0]))
    status = system_one if dialect == "systemone" else decisions
    where = error.where if isinstance(error, BadRequest) else ()
    if status == 422 or (dialect == "decisions" and isinstance(error, BadRequest)):
        return status, invalid_body(dialect, code, str(error), where)
    return status, refused(dialect, _kind(status), code, str(error), where)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """What the transport refuses: size, encoding, key, path, method."""
    assert isinstance(error, HTTPException)
    body = refused(
        dialect_of_request(request), _kind(error.status_code), f"http_{error.status_code}", str(error.detail)
    )
    return _response(request, error.status_code, body, dict(error.headers or {}))


def unexpected(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours that no exception of the tree tells about; the log has it."""
    status, body = error_body(error, dialect_of_request(request))
    return _response(request, status, body, {})


def dialect_of_request(request: Request) -> Dialect:
    """What the body spoke, or before it was read what the path suggests."""
    known: Dialect | None = getattr(request.state, "dialect", None)
    return known or ("decisions" if request.url.path.endswith("/decisions") else "systemone")


def _kind(status: int) -> str:
    return KINDS.get(status, "api_error" if status >= 500 else "api_usage_error")


def _headers(error: Exception) -> dict[str, str]:
    """When to ask again, or that it is no use to."""
    # SDKs made by OpenAI's generator try a 504 again unless this header says not to.
    if isinstance(error, Expired):
        return {"x-should-retry": "false"}
    if not isinstance(error, Overloaded | Unavailable):
        return {}
    # Whole seconds are all that the standard header can say; both vendors' SDKs look for milliseconds first.
    seconds = error.retry_after if isinstance(error, Overloaded) else 1.0
    return {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(math.ceil(seconds * 1000))}


def _response(request: Request, status: int, body: ErrorReply, headers: dict[str, str]) -> JSONResponse:
    if not getattr(request.state, "cloudflare", False):
        return Json(body, status, headers)
    # Cloudflare has codes of its own here; clients show the message.
    errors = [{"code": status, "message": body["error"]["message"]}]
    return Json({"result": None, "success": False, "errors": errors, "messages": []}, status, headers)
