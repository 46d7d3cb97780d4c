"""Rows a and b: what a state that was read before saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_report import Check
from engine_sides import Plan
from engine_texts import Texts, body, difference
from engine_timing import in_turns, medians, ratio, seconds

from quaver.decider import Decider

#: Of the ratio of all tokens to those of the new questions.
SHARE_OF_TOKENS = 0.7


def second_questions(plan: Plan) -> list[Check]:
    """Row a: new questions about a long state, beside the first ones about it and beside the reference."""
    texts, state_tokens = Texts(plan.hybrid), plan.tokens(4096)
    first, second = (texts.questions(200, name) for name in ("first", "second"))
    schema = texts.schema_tokens(second)
    replies: dict[str, dict[str, Any]] = {}

    with plan.decider(plan.hybrid) as decider, plan.reference(plan.hybrid) as reference:
        for ask in (decider.systemone, reference.systemone):
            ask(texts.sized(128, "warm-up"))

        def ours(number: int) -> dict[str, Callable[[], object]]:
            state = texts.state(state_tokens, number)

            def again() -> None:
                replies["ours"] = decider.systemone(body(state, second))

            def loop() -> None:
                replies["theirs"] = reference.systemone(body(state, second))

            def both() -> None:
                cold.append(seconds(lambda: decider.systemone(body(state, first))))
                warm.append(seconds(again))

            return {"both": both, "reference": loop}

        cold: list[float] = []
        warm: list[float] = []
        measured = in_turns(plan.rounds or 2, ours) | {"cold": cold, "second": warm}

    usage = replies["ours"]["usage"]
    tokens = usage["input_tokens"]
    notes = {
        "tokens": tokens,
        "schema_tokens": schema,
        "cached_tokens": usage["input_tokens_details"]["cached_tokens"],
        "rounds": len(cold),
        "difference": difference(replies["ours"], replies["theirs"]),
    }
    figures = medians(measured)
    what = f"second questions ({schema} tokens) about a state of {state_tokens}"
    target = SHARE_OF_TOKENS * tokens / schema
    return [
        _check("a", f"{what}, beside the first", figures, ("cold", "second"), ratio(cold, warm), target, notes),
        _check(
            "a",
            f"{what}, beside the reference loop",
            figures,
            ("reference", "second"),
            ratio(measured["reference"], warm),
            10.0,
            notes,
        ),
    ]


def growing_state(plan: Plan) -> list[Check]:
    """Row b: a state that grows at its end, asked about at every step, with and without the cache."""
    texts, steps = Texts(plan.hybrid), 20
    first, last = plan.tokens(1000), plan.tokens(5000)
    lengths = [round(first + (last - first) * step / (steps - 1)) for step in range(steps)]
    questions = texts.questions(200, "growing")
    cached, uncached, apart = [], [], 0.0
    with plan.decider(plan.hybrid) as keeps, plan.decider(plan.hybrid, cache_bytes=0) as forgets:
        for ask in (keeps.systemone, forgets.systemone):
            ask(texts.sized(128, "warm-up"))
        for number in range(plan.rounds or 1):
            bodies = [body(texts.state(length, f"growing {number}"), questions) for length in lengths]
            steps_taken = [(_timed(keeps, asked), _timed(forgets, asked)) for asked in bodies]
            cached.append(sum(with_cache for (with_cache, _), _ in steps_taken))
            uncached.append(sum(without for _, (without, _) in steps_taken))
            apart = max(apart, *(difference(one, other) for (_, one), (_, other) in steps_taken))
        stats = keeps.stats()
    figures = medians({"cached": cached, "uncached": uncached})
    what = f"a state growing from {first} to {last} tokens in {steps} steps, 3 questions each"
    notes = {"rounds": len(cached), "difference": apart, "tokens_computed": stats["tokens_computed"]}
    return [Check("b", what, figures, "s", ratio(cached, uncached), "<=", 0.25, notes)]


def _timed(decider: Decider[Any], asked: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Seconds and reply."""
    replies: list[dict[str, Any]] = []
    return seconds(lambda: replies.append(decider.systemone(asked))), replies[0]


def _check(
    row: str,
    what: str,
    figures: dict[str, float],
    sides: tuple[str, str],
    found: float,
    target: float,
    notes: dict[str, Any],
) -> Check:
    return Check(row, what, {side: figures[side] for side in sides}, "s", found, ">=", target, notes)
