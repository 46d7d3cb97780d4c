"""API keys before vLLM's routes and ours: the same keys, but our routes say so in the dialect of the request."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware


class TheirDoor(AuthenticationMiddleware):
    """vLLM's check of keys for all paths but ``ours``, which check them themselves and take ``X-API-Key`` too."""

    def __init__(self, app: ASGIApp, tokens: list[str], ours: Sequence[Route]) -> None:
        super().__init__(app, tokens)
        self._ours = ours

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and any(route.matches(scope)[0] is Match.FULL for route in self._ours):
            return self.app(scope, receive, send)
        return super().__call__(scope, receive, send)


def one_door_each(app: FastAPI, ours: Sequence[Route], keys: Sequence[str]) -> None:
    """Puts ``TheirDoor`` in the place of vLLM's check, or where there was none. Before the app's first request."""
    app.user_middleware = [entry for entry in app.user_middleware if entry.cls is not AuthenticationMiddleware]
    if keys:
        app.user_middleware.insert(0, Middleware(TheirDoor, tokens=list(keys), ours=ours))
    # vLLM has the layers put together before plugins learn the keys.
    if app.middleware_stack is not None:
        app.middleware_stack = app.build_middleware_stack()
