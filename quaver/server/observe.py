"""The outermost layer: an id for every request, a count and a time for every decision, no exception unanswered."""

from __future__ import annotations

import logging
import re
import time
import uuid

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quaver.server.errors import unexpected
from quaver.server.service import Service

log = logging.getLogger("quaver.server")

ID_HEADERS = ("x-request-id", "x-typesafe-request-id")
#: Ids go into a header and into the log as they are.
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Observe:
    """ASGI middleware. A decision route is one that leaves ``dialect`` on the request's state."""

    # Plain ASGI, so that nothing stands between a route and the news that its caller has left.
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, started, status = Request(scope), time.perf_counter(), 0
        request_id = _request_id(request)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                for name in ID_HEADERS:
                    MutableHeaders(scope=message)[name] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            log.exception("request %s failed", request_id)
            # A reply that has begun cannot become another one.
            if status:
                raise
            await unexpected(request, error)(scope, receive, send_with_id)
        finally:
            dialect = getattr(request.state, "dialect", None)
            if dialect:
                # No status: the caller was gone before a reply began.
                self._service.metrics.finished(dialect, status or 499, time.perf_counter() - started)


def _request_id(request: Request) -> str:
    """The caller's own id when it is harmless, else a new one."""
    given = next((request.headers[name] for name in ID_HEADERS if name in request.headers), "")
    return given if _SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
