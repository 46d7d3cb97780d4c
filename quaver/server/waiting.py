"""Waiting for answers: under the caller's time limit, and only as long as the caller does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request, Response

from quaver.errors import Expired
from quaver.questions import Answers

Result = TypeVar("Result")


class ClientLeft(Exception):
    """Nobody waits for the reply any more."""


async def on_client_left(_request: Request, _error: Exception) -> Response:
    """499, as proxies log it; it is counted but reaches no one."""
    return Response(status_code=499)


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What ``work`` gives; a client that leaves first takes it along."""
    result = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    either: set[asyncio.Future[Any]] = {result, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # An answer that is there is sent even to a caller who seems gone: the socket knows best.
        if not result.done():
            raise ClientLeft
        return result.result()
    finally:
        # Also when this is cancelled itself, as by a server that stops at once.
        gone.cancel()
        result.cancel()


@asynccontextmanager
async def time_limit(since: float, seconds: float | None) -> AsyncIterator[None]:
    """Expired, and what is awaited inside cancelled, ``seconds`` after ``since`` on the loop's clock."""
    try:
        async with asyncio.timeout_at(None if seconds is None else since + seconds) as limit:
            yield
    except TimeoutError:
        # A TimeoutError of what ran inside, and not of this limit.
        if not limit.expired():
            raise
        raise Expired(
            f"no answer within {seconds} s, the x_timeout_ms of the request; allow more time or ask when less waits"
        ) from None


async def in_time(job: Future[Answers], since: float, seconds: float | None) -> Answers:
    """What ``job`` gives under a time limit; cancelling this drops it."""
    async with time_limit(since, seconds):
        return await asyncio.wrap_future(job)


async def _disconnected(request: Request) -> None:
    # The body was read before, so the next thing to come is that the caller leaves.
    while (await request.receive())["type"] != "http.disconnect":
        pass
