"""Rows d and e: many requests at once, and short ones beside a giant."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Any

from engine_report import Check
from engine_sides import Plan
from engine_texts import Texts, body, difference
from engine_timing import in_turns, medians, ratio, seconds

from quaver.protocol import parse

CLIENTS = 16


def many_clients(plan: Plan) -> list[Check]:
    """Row d: requests of mixed sizes from many clients at once, beside the reference one after another."""
    texts, count = Texts(plan.hybrid), plan.count(48, least=CLIENTS)
    replies: dict[str, list[dict[str, Any]]] = {}
    tokens: list[int] = []
    with plan.decider(plan.hybrid) as decider, plan.reference(plan.hybrid) as reference:
        for ask in (decider.systemone, reference.systemone):
            ask(texts.sized(128, "warm-up"))

        def sides(number: int) -> dict[str, Callable[[], object]]:
            asked = mixed_bodies(texts, plan, count, number)
            tokens.extend(len(texts.encoded(one).ids) for one in asked)

            def ours() -> None:
                replies["quaver"] = list(clients.map(decider.systemone, asked))

            def theirs() -> None:
                replies["reference"] = [reference.systemone(one) for one in asked]

            return {"quaver": ours, "reference": theirs}

        with ThreadPoolExecutor(CLIENTS) as clients:
            measured = in_turns(plan.rounds or 1, sides)
        reused = decider.stats()["tokens_reused"]
    rates = {name: count / value for name, value in medians(measured).items()}
    what = f"{count} requests of {min(tokens)} to {max(tokens)} tokens, {CLIENTS} clients, {plan.hybrid.name}"
    notes = {
        "rounds": len(measured["quaver"]),
        "tokens": sum(tokens),
        "tokens_reused": reused,
        "difference": max(map(difference, replies["quaver"], replies["reference"])),
    }
    return [Check("d", what, rates, "requests/s", ratio(measured["reference"], measured["quaver"]), ">=", 3.0, notes)]


def mixed_bodies(texts: Texts, plan: Plan, count: int, seed: object) -> list[dict[str, Any]]:
    """Three questions each about states of 50 to 800 tokens; every third is a state that was asked about before."""
    rng = random.Random(str(seed))
    states: list[str] = []
    bodies = []
    for number in range(count):
        if number % 3 == 2:
            state = rng.choice(states)
        else:
            states.append(state := texts.state(rng.randint(plan.tokens(50), plan.tokens(800)), f"{seed} {number}"))
        bodies.append(body(state, texts.questions(0, number % 8)))
    return bodies


def beside_a_giant(plan: Plan) -> list[Check]:
    """Row e: short requests, one after another, while a giant state is read."""
    texts, giant_tokens = Texts(plan.hybrid), plan.tokens(16_000)
    rng = random.Random("pauses")
    giant = body(texts.state(giant_tokens, "giant"), texts.questions(0, "giant"))
    with plan.decider(plan.hybrid) as decider:
        decider.systemone(texts.sized(60, "warm-up"))

        def short(number: int) -> float:
            asked = texts.sized(60, number)
            return seconds(lambda: decider.systemone(asked))

        alone = [short(-number - 1) for number in range(plan.count(20))]
        pause = median(alone)
        running = decider.submit(parse(giant).request)
        beside = []
        while not (beside and running.done()):
            # So that they meet the giant's parts at any moment of theirs.
            time.sleep(rng.uniform(0.0, pause))
            beside.append(short(len(beside)))
        running.result()
    slowest = quantiles([*beside, beside[0]], n=20, method="inclusive")[-1]
    tokens = len(texts.encoded(texts.sized(60, 0)).ids)
    what = f"p95 of {tokens}-token requests while a state of {giant_tokens} is read, beside alone"
    figures = {"alone": median(alone), "median": median(beside), "p95": slowest}
    return [Check("e", what, figures, "s", slowest / figures["alone"], "<=", 4.0, {"requests": len(beside)})]
