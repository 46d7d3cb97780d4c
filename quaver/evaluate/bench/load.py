"""Sends requests in a closed loop (so many at once) or an open one (at given times), and times each.

In an open loop the time of a request counts from when it was due, not from when it was sent, so that a
server which makes the generator wait does not hide it (coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from quaver.evaluate.decisions import decisions_body

Arrivals = Literal["constant", "poisson"]


@dataclass(frozen=True, slots=True)
class Server:
    """``url`` is the endpoint itself; one that ends in ``decisions`` is asked in that dialect."""

    name: str
    url: str
    headers: Mapping[str, str]

    def body(self, systemone: Mapping[str, Any]) -> Mapping[str, Any]:
        return decisions_body(systemone) if self.url.rstrip("/").endswith("decisions") else systemone


@dataclass(frozen=True, slots=True)
class Closed:
    """``concurrency`` callers, each of whom asks again as soon as it is answered."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class Open:
    """Requests at ``rate`` per second whether or not earlier ones are answered, evenly or as a Poisson process."""

    rate: float
    arrivals: Arrivals = "poisson"

    def due(self, count: int, seed: int) -> Iterator[float]:
        """Seconds from the start at which each of ``count`` requests is due."""
        rng, at = random.Random(seed), 0.0
        for _ in range(count):
            yield at
            at += rng.expovariate(self.rate) if self.arrivals == "poisson" else 1 / self.rate


Load = Closed | Open


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. ``seconds`` from due to answered; ``lag`` from due to sent; ``error`` is its kind or None."""

    seconds: float
    lag: float
    error: str | None
    input_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """An unbroken stretch of load on one server that took ``wall`` seconds."""

    samples: tuple[Sample, ...]
    wall: float


async def drive(
    client: httpx.AsyncClient, server: Server, load: Load, bodies: Sequence[Mapping[str, Any]], seed: int = 0
) -> Block:
    """Send ``bodies`` under ``load``; ``client`` must not limit connections below what the load needs."""
    # Before the clock runs: turning bodies into the other dialect is not the server's time.
    prepared = [server.body(body) for body in bodies]
    started = time.perf_counter()
    if isinstance(load, Closed):
        queue = iter(prepared)
        callers = (_caller(client, server, queue) for _ in range(load.concurrency))
        samples = [sample for part in await asyncio.gather(*callers) for sample in part]
    else:
        due = [started + at for at in load.due(len(prepared), seed)]
        samples = list(await asyncio.gather(*(_at(client, server, b, t) for b, t in zip(prepared, due, strict=True))))
    return Block(tuple(samples), time.perf_counter() - started)


async def _caller(client: httpx.AsyncClient, server: Server, queue: Iterable[Mapping[str, Any]]) -> list[Sample]:
    return [await _send(client, server, body, time.perf_counter()) for body in queue]


async def _at(client: httpx.AsyncClient, server: Server, body: Mapping[str, Any], due: float) -> Sample:
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return await _send(client, server, body, due)


async def _send(client: httpx.AsyncClient, server: Server, body: Mapping[str, Any], due: float) -> Sample:
    sent = time.perf_counter()
    error, input_tokens, cached_tokens = await _ask(client, server, body)
    return Sample(time.perf_counter() - due, sent - due, error, input_tokens, cached_tokens)


async def _ask(client: httpx.AsyncClient, server: Server, body: Mapping[str, Any]) -> tuple[str | None, int, int]:
    """The kind of error or None, and the tokens of the reply, read and cached."""
    try:
        response = await client.post(server.url, json=body, headers=dict(server.headers))
    except httpx.TimeoutException:
        return "timeout", 0, 0
    except httpx.TransportError as error:
        return type(error).__name__, 0, 0
    if not response.is_success:
        return f"HTTP {response.status_code}", 0, 0
    try:
        usage = response.json()["usage"]
        details = usage.get("input_tokens_details") or {}
        return None, int(usage["input_tokens"]), int(details.get("cached_tokens") or 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "not a reply", 0, 0
