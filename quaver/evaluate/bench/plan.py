"""Which load, in which order: a fixed list of levels, or a search for the highest rate that is kept up with.

Several servers share every level: in each round the order of servers is drawn anew, so that a machine
that warms up or slows down does not favour one of them. Warm-up requests are sent first and not counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import httpx

from quaver.evaluate.bench.load import Block, Closed, Load, Open, Server, drive
from quaver.evaluate.bench.summary import summarise
from quaver.evaluate.bench.workload import Workload

#: A server keeps up when it answers this share of what is offered, in time and without errors.
KEEPS_UP = 0.9
BISECTIONS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """``requests`` per level and server, split into ``rounds``. ``levels`` empty means a search for saturation
    from ``rate`` per second on, where the 95th percentile may not pass ``slowest`` seconds; its steps last at
    least ``step`` seconds, because a shorter burst is over before a backlog shows."""

    levels: tuple[Load, ...]
    requests: int = 200
    rounds: int = 4
    warmup: int = 20
    rate: float = 1.0
    slowest: float = 1.0
    step: float = 10.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """What one server did under one load."""

    load: Load
    blocks: tuple[Block, ...]


@dataclass(slots=True)
class Search:
    """Doubles the rate while a server keeps up, then halves the gap; ``kept`` is the highest rate kept up with."""

    rate: float
    kept: float = 0.0
    failed: float | None = None
    steps: int = 0
    levels: list[Level] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.steps > BISECTIONS

    def learn(self, level: Level, kept_up: bool) -> None:
        self.levels.append(level)
        if kept_up:
            self.kept = self.rate
        else:
            self.failed = self.rate
        if self.failed is None:
            self.rate *= 2
        else:
            self.steps += 1
            self.rate = (self.kept + self.failed) / 2


@dataclass(frozen=True, slots=True)
class Result:
    """Levels by server name; ``sustained``: requests per second kept up with, where that was searched for."""

    levels: Mapping[str, tuple[Level, ...]]
    sustained: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            name: {
                "levels": [summarise(level.load, level.blocks) for level in levels],
                **({"sustained_per_second": self.sustained[name]} if name in self.sustained else {}),
            }
            for name, levels in self.levels.items()
        }


async def bench(
    servers: Sequence[Server],
    workload: Workload,
    plan: Plan,
    *,
    timeout: float = 60.0,
    on_progress: Callable[[str], None] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Result:
    """Run ``plan`` on ``servers``, whose names differ; ``on_progress`` hears what is about to run."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, transport=transport) as client:
        runner = _Runner(client, workload, plan, on_progress)
        await runner.warm_up(servers)
        return await (runner.levels(servers) if plan.levels else runner.search(servers))


class _Runner:
    def __init__(
        self, client: httpx.AsyncClient, workload: Workload, plan: Plan, on_progress: Callable[[str], None] | None
    ) -> None:
        self._client, self._workload, self._plan, self._tell = client, workload, plan, on_progress
        self._random = random.Random(plan.seed)
        self._sent = 0

    async def warm_up(self, servers: Sequence[Server]) -> None:
        bodies = self._take(self._plan.warmup)
        for server in servers:
            await drive(self._client, server, Closed(4), bodies)

    async def levels(self, servers: Sequence[Server]) -> Result:
        found: dict[str, list[Level]] = {server.name: [] for server in servers}
        for load in self._plan.levels:
            blocks: dict[str, list[Block]] = {server.name: [] for server in servers}
            for round_, count in enumerate(_shared_out(self._plan.requests, self._plan.rounds)):
                bodies = self._take(count)
                for server in self._random.sample(servers, len(servers)):
                    blocks[server.name].append(await self._drive(server, load, bodies, f"round {round_ + 1}"))
            for name, own in blocks.items():
                found[name].append(Level(load, tuple(own)))
        return Result({name: tuple(levels) for name, levels in found.items()}, {})

    async def search(self, servers: Sequence[Server]) -> Result:
        searches = {server.name: Search(self._plan.rate) for server in servers}
        while not all(search.done for search in searches.values()):
            counts = {name: self._count(search.rate) for name, search in searches.items() if not search.done}
            bodies = self._take(max(counts.values()))
            for server in self._random.sample(servers, len(servers)):
                search = searches[server.name]
                if not search.done:
                    load = Open(search.rate)
                    block = await self._drive(server, load, bodies[: counts[server.name]], "search")
                    level = Level(load, (block,))
                    search.learn(level, self._keeps_up(level))
        return Result(
            {name: tuple(search.levels) for name, search in searches.items()},
            {name: search.kept for name, search in searches.items()},
        )

    def _count(self, rate: float) -> int:
        return max(self._plan.requests, ceil(rate * self._plan.step))

    def _keeps_up(self, level: Level) -> bool:
        measured = summarise(level.load, level.blocks)
        answered = measured["ok"] >= KEEPS_UP * measured["requests"]
        return bool(answered) and measured["seconds"]["p95"] <= self._plan.slowest

    def _take(self, count: int) -> list[dict[str, Any]]:
        """The next ``count`` bodies; every server gets the same ones, and no state called new comes twice."""
        self._sent += count
        return [self._workload.body(i) for i in range(self._sent - count, self._sent)]

    async def _drive(self, server: Server, load: Load, bodies: Sequence[Mapping[str, Any]], what: str) -> Block:
        if self._tell:
            self._tell(f"{server.name}: {load}, {what}")
        return await drive(self._client, server, load, bodies, self._random.randrange(2**32))


def _shared_out(requests: int, rounds: int) -> list[int]:
    """``requests`` in at most ``rounds`` parts that differ by one at most; no part is empty."""
    parts = min(requests, rounds)
    return [requests // parts + (part < requests % parts) for part in range(parts)]
