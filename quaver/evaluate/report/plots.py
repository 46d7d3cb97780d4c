"""Plots as SVG text, to stand inside a page. No global state of matplotlib is touched."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from quaver.evaluate.metrics import Columns, Item, risk_coverage
from quaver.evaluate.statistics import wilson

INK, BLUE, RED, GREY, PALE = "#1d2530", "#2563a8", "#c2413a", "#8b95a3", "#d9e5f3"
PALETTE = (BLUE, RED, "#2e8b57", "#b8860b", "#7b52ab", "#4a5568")
BINS = 10
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: small, and searchable in the page
    "svg.hashsalt": "quaver",
}

Line = tuple[Sequence[float], Sequence[float]]


def figure(width: float = 3.6, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure in inches with one set of axes."""
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        return drawn, drawn.subplots()


def svg(drawn: Figure) -> str:
    """The ``<svg>`` element of a figure, without an XML head."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        drawn.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    # Every figure numbers its groups from 1, and ids must be unique in a page.
    return re.sub(r'<g id="[^"]+">', "<g>", text[text.index("<svg") :])


def reliability(items: Sequence[Item]) -> str:
    """How often answers were right against how sure they were: of *true* for nouls, of the best option otherwise.

    A dot is a tenth of the items, its bar Wilson's 95 % interval; the histogram shows where the answers lie.
    """
    nouls = all(item.kind == "noul" for item in items)
    sure = np.array([item.settled[0] if nouls else max(item.settled) for item in items])
    right = np.array([float(item.label == (0 if nouls else int(np.argmax(item.settled)))) for item in items])
    drawn, axes = figure()
    axes.hist(sure, bins=20, range=(0, 1), weights=np.full(len(sure), 0.35 / len(sure)), color=PALE)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    order = np.argsort(sure, kind="stable")
    for part in np.array_split(order, min(BINS, max(1, len(items) // 5))):
        rate = float(right[part].mean())
        low, high = wilson(int(right[part].sum()), len(part))
        error = [[max(0.0, rate - low)], [max(0.0, high - rate)]]
        axes.errorbar(sure[part].mean(), rate, yerr=error, fmt="o", color=BLUE, markersize=4, linewidth=1)
    # A little more than 0 to 1, or dots that stand at an end would be cut in half.
    axes.set(
        xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="probability of true" if nouls else "probability of the answer"
    )
    axes.set_ylabel("share true" if nouls else "share right")
    return svg(drawn)


def risk_curve(c: Columns) -> str:
    """Share wrong among the answers kept against the share kept, most certain first; dotted: the best order."""
    share, risk = risk_coverage(c)
    wrong = round(len(c.right) - float(c.right.sum()))
    best = np.maximum(0, np.arange(1, len(share) + 1) - (len(share) - wrong)) / np.arange(1, len(share) + 1)
    drawn, axes = figure()
    axes.plot(share, best, color=GREY, linewidth=1, linestyle=":")
    axes.plot(share, risk, color=BLUE, linewidth=1.5)
    axes.axhline(float(risk[-1]), color=GREY, linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), ylim=(0, max(0.05, float(risk.max()) * 1.1)))
    axes.set(xlabel="share answered, most certain first", ylabel="share wrong among them")
    return svg(drawn)


def confusion(items: Sequence[Item]) -> str:
    """Right options down, given answers across, counts in the cells; a last column for failures when there are any."""
    options = items[0].options
    failures = any(item.failed for item in items)
    counts = np.zeros((len(options), len(options) + failures))
    for item in items:
        counts[item.label, -1 if item.failed else int(np.argmax(item.probabilities))] += 1
    names = [option if len(option) <= 16 else option[:15] + "…" for option in options]
    across = [*names, "(no answer)"] if failures else names
    size = 1.6 + 0.34 * len(across)
    drawn, axes = figure(size, size - 0.2)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            ink = "white" if shares[row, column] > 0.5 else INK
            axes.text(column, row, f"{int(count)}", ha="center", va="center", color=ink)
    axes.set_xticks(range(len(across)), across, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="answer", ylabel="right")
    axes.tick_params(length=0)
    return svg(drawn)


def lines(series: Mapping[str, Line], across: str, up: str, *, steps: bool = False) -> str:
    """Named lines over a common axis, from zero up."""
    drawn, axes = figure(3.3, 2.7)  # three fit beside each other
    for color, (name, (x, y)) in zip(PALETTE * (1 + len(series) // len(PALETTE)), series.items(), strict=False):
        if steps:
            axes.step(x, y, where="post", color=color, linewidth=1.5, label=name)
        else:
            axes.plot(x, y, color=color, linewidth=1.5, marker="o", markersize=3.5, label=name)
    axes.set(xlabel=across, ylabel=up)
    if all(float(x).is_integer() for xs, _ in series.values() for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no half a request
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return svg(drawn)
