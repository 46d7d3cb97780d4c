"""A server under pictures and clips while every tenth request is hostile: answers, refusals, memory.

Starts ``quaver serve`` on the release of the tests, asks every good request once in quiet, then all of them many
times over from several clients. Every good answer must be the quiet one, every hostile request must be refused as
its kind should be, and the memory of the server and its decoders must not grow after the first fifth. Prints a
table, then one line of JSON; ends with 1 when something was not so.

    .venv/bin/python benchmarks/media_load.py [--requests 5000] [--clients 8]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from media_requests import FOLDER, Ask, good, hostile

RELEASE = FOLDER.parent
#: A warm state is read in other parts than a cold one; sums then differ in their last bits.
TOLERANCE = 1e-5
#: How much memory may grow after the first fifth, and from how many requests on that says something.
GROWTH, ENOUGH = 0.05, 2000
LEFT = 499


@dataclass(slots=True)
class Seen:
    """What became of the requests of one kind."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def line(self, kind: str) -> str:
        middle, late = statistics.median(self.seconds), sorted(self.seconds)[int(len(self.seconds) * 0.95)]
        return f"| {kind} | {len(self.seconds)} | {self.right} | {middle * 1e3:.0f} | {late * 1e3:.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=8)
    arguments = parser.parse_args()
    with serving() as (url, process), httpx.Client(base_url=url, timeout=120) as client:
        asks = good()
        quiet = [numbers(ask.send(client)) for ask in asks]
        plan = planned(asks, quiet, arguments.requests)
        seen: dict[str, Seen] = defaultdict(Seen)
        memory: list[int] = []
        for fifth in range(5):
            part = plan[fifth * len(plan) // 5 : (fifth + 1) * len(plan) // 5]
            with ThreadPoolExecutor(arguments.clients) as clients:
                for ask, outcome in clients.map(lambda item: run(client, *item), part):
                    note(seen[ask.kind], *outcome)
            memory.append(resident(process.pid))
    return report(seen, memory)


def planned(asks: list[Ask], quiet: list[dict[str, float]], count: int) -> list[tuple[Ask, dict[str, float] | None]]:
    """``count`` requests in a fixed random order, every tenth a hostile one, with the answers they should have."""
    rng, attacks = random.Random("media"), hostile()
    plan: list[tuple[Ask, dict[str, float] | None]] = []
    for number in range(count):
        if number % 10 == 9:
            plan.append((attacks[number // 10 % len(attacks)], None))
        else:
            chosen = rng.randrange(len(asks))
            plan.append((asks[chosen], quiet[chosen]))
    return plan


def run(client: httpx.Client, ask: Ask, expected: dict[str, float] | None) -> tuple[Ask, tuple[str, float]]:
    """Sends one request; what was wrong with what came back (nothing: an empty text), and the seconds it took."""
    started = time.perf_counter()
    try:
        reply = ask.send(client)
        status = reply.status_code
    except httpx.TimeoutException:
        status = LEFT
    seconds = time.perf_counter() - started
    if status not in ask.statuses:
        return ask, (f"status {status}", seconds)
    if expected is None:
        return ask, ("", seconds)
    apart = max(abs(p - expected[name]) for name, p in numbers(reply).items())
    return ask, (f"{apart} from the quiet answer" if apart > TOLERANCE else "", seconds)


def numbers(reply: httpx.Response) -> dict[str, float]:
    """Probabilities of the answers, by option."""
    answers: dict[str, Any] = reply.raise_for_status().json()["answers"]
    return {"late": answers["late"]["noul"], **answers["what"]["probabilities"]}


def note(seen: Seen, wrong: str, seconds: float) -> None:
    seen.seconds.append(seconds)
    if wrong:
        seen.wrong.append(wrong)
    else:
        seen.right += 1


def report(seen: dict[str, Seen], memory: list[int]) -> int:
    """Prints the table and the JSON; 0 when all was as it should be."""
    print("| request | sent | as it should be | median ms | 95th ms |\n|---|---|---|---|---|")
    for kind in sorted(seen):
        print(seen[kind].line(kind))
    count = sum(len(one.seconds) for one in seen.values())
    growth = max(memory[1:]) / memory[0] - 1
    print(f"\nresident MiB after each fifth: {', '.join(str(size >> 20) for size in memory)} ({growth:+.1%})")
    wrong = {kind: one.wrong[:5] for kind, one in seen.items() if one.wrong}
    flat = growth <= GROWTH or count < ENOUGH
    facts = {"benchmark": "media_load", "requests": count, "wrong": wrong, "resident": memory, "growth": growth}
    facts["refused"] = sum(one.right for kind, one in seen.items() if kind.startswith("hostile"))
    facts["answered"] = sum(one.right for kind, one in seen.items() if not kind.startswith("hostile"))
    print(json.dumps(facts))
    return 0 if flat and not wrong else 1


@contextmanager
def serving() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """``quaver serve`` on a free port, ready."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ["--port", str(port), "--dtype", "float32", "--state-cache", "64MiB"]
    places = ["--allow-media-dir", str(FOLDER), "--allow-media-hosts", "media.invalid,2130706433,169.254.169.254"]
    process = subprocess.Popen([sys.executable, "-m", "quaver", "serve", str(RELEASE), *options, *places])
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                httpx.get(f"{url}/readyz").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None, "the server did not start"
                time.sleep(0.2)
        yield url, process
    finally:
        process.terminate()
        process.wait(60)


def resident(pid: int) -> int:
    """Bytes of memory that a process and its children hold."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    children = " ".join(file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")).split()
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


if __name__ == "__main__":
    sys.exit(main())
