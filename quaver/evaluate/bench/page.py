"""A load test as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from quaver.evaluate.bench.load import Closed, Load
from quaver.evaluate.bench.plan import Level, Result
from quaver.evaluate.bench.summary import summarise
from quaver.evaluate.report.page import environment
from quaver.evaluate.report.plots import Line, lines


def page(result: Result, settings: Mapping[str, Any]) -> str:
    """The HTML document; ``settings`` is what was asked for, printed at its end."""
    rows = [
        {**summarise(level.load, level.blocks), "server": name, "load": words(level.load)}
        for name, levels in result.levels.items()
        for level in levels
    ]
    template = environment().get_template("bench.html.j2")
    return template.render(
        title="Load",
        rows=rows,
        sustained=result.sustained,
        plots=_plots(result),
        settings=json.dumps(settings, indent=2, ensure_ascii=False),
    )


def words(load: Load) -> str:
    """A load for people."""
    if isinstance(load, Closed):
        return f"{load.concurrency} at once"
    return f"{load.rate:.3g}/s, {load.arrivals}"


def _plots(result: Result) -> list[dict[str, str]]:
    longest = max(len(levels) for levels in result.levels.values())
    if longest == 1:
        series = {name: _distribution(levels[0]) for name, levels in result.levels.items()}
        svg = lines(series, "milliseconds", "share answered within", steps=True)
        return [{"svg": svg, "caption": "How soon requests were answered."}]
    across = "requests at once" if _closed(result) else "requests offered per second"
    return [
        {"svg": lines(_curves(result, "per_second"), across, "answered per second"), "caption": "Throughput."},
        {"svg": lines(_curves(result, "p50"), across, "milliseconds"), "caption": "Median time to an answer."},
        {
            "svg": lines(_curves(result, "p95"), across, "milliseconds"),
            "caption": "95th percentile of the time to an answer.",
        },
    ]


def _closed(result: Result) -> bool:
    return all(isinstance(level.load, Closed) for levels in result.levels.values() for level in levels)


def _curves(result: Result, name: str) -> dict[str, Line]:
    """A number of every level against its load, per server; levels without an answer are left out."""
    found: dict[str, Line] = {}
    for server, levels in result.levels.items():
        points = []
        for level in levels:
            measured = summarise(level.load, level.blocks)
            value = measured["per_second"] if name == "per_second" else measured["seconds"][name]
            if value is not None:
                value *= 1 if name == "per_second" else 1000
                points.append((level.load.concurrency if isinstance(level.load, Closed) else level.load.rate, value))
        points.sort()
        found[server] = ([x for x, _ in points], [y for _, y in points])
    return found


def _distribution(level: Level) -> Line:
    times = sorted(1000 * s.seconds for block in level.blocks for s in block.samples if s.error is None)
    return times, np.linspace(1 / max(1, len(times)), 1, len(times)).tolist()
