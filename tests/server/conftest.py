"""An app over a fake decider, reached without a socket or through a real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from quaver.server import ServerConfig, create_app
from quaver.testing import FakeDecider

SYSTEMONE = {"state": "Card was charged twice", "questions": {"q": {"type": "noul", "instructions": "Refund?"}}}
DECISIONS = {"input": "Card was charged twice", "questions": [{"type": "predicate", "instructions": "Refund?"}]}


class Http:
    """Calls an app in this process, one call at a time."""

    def __init__(self, decider: FakeDecider, config: ServerConfig | None = None) -> None:
        self.decider = decider
        self.app = create_app(decider, config)

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://quaver") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def ask(self, body: Any = SYSTEMONE, path: str = "/v1/systemone", **options: Any) -> httpx.Response:
        return self("POST", path, json=body, **options)


class Running:
    """The same app behind a socket, in a thread of this process."""

    def __init__(self, decider: FakeDecider, config: ServerConfig | None = None) -> None:
        self.decider = decider
        options = uvicorn.Config(create_app(decider, config), port=0, log_level="warning")
        self._server = uvicorn.Server(options)
        self.thread = threading.Thread(target=self._server.run, daemon=True)
        self.thread.start()
        while not self._server.started:
            self.thread.join(0.01)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """What a signal does; ``thread`` ends when the last accepted request is answered."""
        self._server.should_exit = True


@pytest.fixture
def http() -> Iterator[Http]:
    decider = FakeDecider()
    yield Http(decider)
    decider.close()


@contextmanager
def _starting() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(decider: Any, config: ServerConfig | None = None) -> Running:
        started.append(Running(decider, config))
        return started[-1]

    yield start
    for server in started:
        server.stop()
        server.thread.join(30)
        assert not server.thread.is_alive()


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """Starts servers that the test need not stop."""
    with _starting() as start:
        yield start


@pytest.fixture(scope="session")
def serving() -> Iterator[Callable[..., Running]]:
    """The same for all tests together."""
    with _starting() as start:
        yield start
