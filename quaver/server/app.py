"""Assembly of the app, and the server that runs it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from quaver.errors import QuaverError, Unavailable
from quaver.server.config import ServerConfig
from quaver.server.errors import on_http_error, on_quaver_error
from quaver.server.metrics import Metrics
from quaver.server.observe import Observe
from quaver.server.openapi import document
from quaver.server.routes import add_routes
from quaver.server.service import Answerer, Service
from quaver.server.waiting import ClientLeft, on_client_left


def create_app(
    decider: Answerer, config: ServerConfig | None = None, registry: CollectorRegistry | None = None
) -> FastAPI:
    """An app that answers with ``decider`` and closes it when it shuts down, after what was accepted is answered.

    Its metrics are in ``registry`` where one is given, which then may hold those of one app only.
    """
    config = config or ServerConfig()
    pool = ThreadPoolExecutor(config.prepare_threads, thread_name_prefix="quaver-prepare")
    media_pool = ThreadPoolExecutor(config.media_threads, thread_name_prefix="quaver-media")
    service = Service(decider, config, Metrics(decider.stats, registry), pool, media_pool)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        # By now uvicorn has answered what it accepted. Closing joins the engine's thread, which may take a step.
        await run_in_threadpool(decider.close)
        pool.shutdown()
        media_pool.shutdown()

    app = FastAPI(
        title="Quaver",
        version=version("quaver"),
        description="A state and typed questions in, a probability for every allowed answer out.",
        lifespan=lifespan,
    )
    app.state.service = service
    add_routes(app)
    app.add_exception_handler(QuaverError, on_quaver_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientLeft, on_client_left)
    # What Starlette raises when the body breaks off.
    app.add_exception_handler(ClientDisconnect, on_client_left)
    app.add_middleware(Observe, service=service)
    # Made once: it takes a third of a second, in the event loop, and anyone may ask for it.
    app.openapi = cache(lambda: document(app))  # type: ignore[method-assign]
    return app


def check_address(config: ServerConfig) -> None:
    """Raises Unavailable when a server cannot listen where ``config`` says; to be told before a model is loaded."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                # As uvicorn's own, so that connections that linger do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        where = f"{config.host}:{config.port}"
        raise Unavailable(f"cannot listen on {where} ({error}); choose another host or port") from error


def run(decider: Answerer, config: ServerConfig | None = None) -> None:
    """Serve until SIGINT or SIGTERM; what was accepted is answered and the decider closed before the process ends."""
    config = config or ServerConfig()
    uvicorn.run(create_app(decider, config), host=config.host, port=config.port, access_log=False)
