"""Results as JSON, and as one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from quaver.evaluate.compare.claims import Book, Judged, carried_and_not
from quaver.evaluate.compare.judge import Result
from quaver.evaluate.statistics import Interval

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def result_json(result: Result) -> dict[str, Any]:
    """Everything in a result but the texts of replies and the servers' read-backs, which the record file has."""
    plan = result.plan
    return {
        "plan": plan.asked(),
        "proven": result.proven,
        "carried": result.carried,
        "not_carried": result.not_carried,
        "warnings": result.warnings,
        "noise_band": result.band,
        "power": {"cases": len(plan.cases), "runs_per_arm": plan.design.runs, "detectable": plan.design.table()},
        "arms": [
            {
                "arm": m.arm,
                "standing": m.standing.state,
                "why": m.standing.why,
                "evidence": [asdict(e) for e in m.standing.evidence],
                "runs": m.runs,
                "failures": m.failures,
                "suspected_loops": m.suspects,
                "mean_seconds": m.seconds,
                "prompt_tokens": m.tokens,
                "parity": None if m.parity is None else asdict(m.parity),
                "rates": [asdict(rate) | {"interval": list(rate.interval)} for rate in m.rates],
            }
            for m in result.measured
        ],
        "findings": [asdict(f) | {"interval": list(f.interval)} for f in result.findings],
    }


def book_json(book: Book, judged: list[Judged]) -> dict[str, Any]:
    return {
        "name": book.name,
        "new_cases": book.new_cases,
        "claims": [
            {
                "says": j.claim.says,
                "kind": j.claim.kind,
                "first": asdict(j.claim.first),
                "second": asdict(j.claim.second),
                "carried": j.carried,
                "verdict": j.verdict,
                "why": j.words,
                "fisher_p": j.p,
                "first_greater": j.posterior,
                "difference": list(j.interval),
                "intervals": [list(interval) for interval in j.intervals],
            }
            for j in judged
        ],
        "luck": [asdict(luck) | {"chance": luck.chance} for luck in book.luck],
        "notes": list(book.notes),
    }


def result_html(result: Result) -> str:
    return _PAGES.get_template("result.html").render(result=result, plan=result.plan, bar=bar, forest=forest)


def book_html(book: Book, judged: list[Judged]) -> str:
    carried, not_carried = carried_and_not(judged)
    return _PAGES.get_template("book.html").render(
        book=book, judged=judged, carried=carried, not_carried=not_carried, bar=bar, forest=forest
    )


def bar(value: float, interval: Interval) -> dict[str, float]:
    """Places in a drawing 100 wide of a rate and its interval."""
    return {"at": 100 * value, "low": 100 * interval.low, "high": 100 * interval.high}


def forest(difference: float, interval: Interval) -> dict[str, float]:
    """Places in a drawing 100 wide of a difference between -1 and 1 and its interval."""
    return {"at": 50 + 50 * difference, "low": 50 + 50 * interval.low, "high": 50 + 50 * interval.high}
