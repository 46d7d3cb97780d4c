"""What every route works with: the decider, the settings, the counters, the threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request as HttpRequest

from quaver.errors import Overloaded
from quaver.questions import Answers, Json, Request
from quaver.server.config import ServerConfig
from quaver.server.metrics import Metrics


class Answerer(Protocol):
    """The part of a decider that a server needs."""

    @property
    def name(self) -> str: ...

    @property
    def ready(self) -> bool: ...

    @property
    def config(self) -> Mapping[str, Json]: ...

    def submit(self, request: Request) -> Future[Answers]: ...

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Service:
    """One per app, on ``app.state.service``."""

    decider: Answerer
    config: ServerConfig
    metrics: Metrics
    pool: ThreadPoolExecutor
    media_pool: ThreadPoolExecutor
    held: int = 0

    def pool_for(self, request: Request) -> ThreadPoolExecutor:
        """The threads that prepare ``request``: media have their own, because they can take long."""
        return self.media_pool if request.images or request.audio or request.videos else self.pool

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place among the requests held at once, or Overloaded. Used in the event loop only."""
        # No lock: nothing else runs in the loop between this line and the next.
        if self.held >= self.config.max_in_flight:
            raise Overloaded(f"the server holds {self.held} requests already; try again soon")
        self.held += 1
        try:
            with self.metrics.in_flight.track_inprogress():
                yield
        finally:
            self.held -= 1


def service_of(request: HttpRequest) -> Service:
    service: Service = request.app.state.service
    return service
