"""Row g: many requests, every answer checked, memory watched."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from engine_report import Check
from engine_sides import Plan
from engine_texts import Texts, body, probabilities

CLIENTS = 16
TOLERANCE = 2e-5
CACHE_BYTES = 256 << 20
#: Each distinct request is asked so many times on average, in any order.
VISITS = 5
#: Requests whose memory and errors are looked at together.
STRETCHES = 20


def soak(plan: Plan) -> list[Check]:
    """Row g: resident memory after the first tenth, and the largest error, of a long run with a full cache."""
    # The law that every answer is held to is one of float32.
    plan = replace(plan, dtype="float32")
    count = plan.count(20_000, least=100)
    bodies = distinct_bodies(Texts(plan.small), count // VISITS)
    with plan.decider(plan.small, cache_bytes=0) as fresh, ThreadPoolExecutor(CLIENTS) as clients:
        expected = [np.array(probabilities(reply)) for reply in clients.map(fresh.systemone, bodies)]

    rng = random.Random("soak")
    resident, apart, checked = [], 0.0, 0
    with plan.decider(plan.small, cache_bytes=CACHE_BYTES) as decider, ThreadPoolExecutor(CLIENTS) as clients:
        for _ in range(STRETCHES):
            chosen = rng.choices(range(len(bodies)), k=count // STRETCHES)
            replies = clients.map(decider.systemone, (bodies[number] for number in chosen))
            for number, reply in zip(chosen, replies, strict=True):
                apart = max(apart, float(np.abs(np.array(probabilities(reply)) - expected[number]).max()))
                checked += 1
            resident.append(resident_bytes())
        stats = decider.stats()
    base = resident[STRETCHES // 10 - 1]
    worst = max(resident[STRETCHES // 10 :], key=lambda size: abs(size - base))
    notes: dict[str, Any] = {"requests": checked, "failed": stats["jobs_failed"], "evictions": stats["cache_evictions"]}
    notes["resident_mib"] = [round(size / 2**20) for size in resident]
    what = f"{count} requests to {plan.small.name}, cache of {CACHE_BYTES >> 20} MiB"
    memory = {
        "after a tenth": base / 2**20,
        "farthest from it": worst / 2**20,
        "cache": stats["state_cache_bytes"] / 2**20,
    }
    return [
        Check("g", f"{what}: resident memory", memory, "MiB", abs(worst / base - 1.0), "<=", 0.05, notes),
        Check("g", f"{what}: largest error of a probability", {"error": apart}, "", apart, "<=", TOLERANCE),
    ]


def distinct_bodies(texts: Texts, count: int) -> list[dict[str, Any]]:
    """Three questions each about states of 50 to 300 tokens; every fourth is one of the others, grown at its end."""
    rng = random.Random("bodies")
    bodies = []
    for number in range(count):
        grown = number % 4 == 3
        tokens = rng.randint(300, 400) if grown else rng.randint(50, 300)
        bodies.append(body(texts.state(tokens, number - grown), texts.questions(0, number % 8)))
    return bodies


def resident_bytes() -> int:
    """What this process holds of the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
