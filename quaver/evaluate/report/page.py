"""The summary of a run as one HTML page that needs nothing beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from quaver.evaluate.metrics import Item, columns
from quaver.evaluate.report import plots
from quaver.evaluate.report.gates import Verdict
from quaver.evaluate.report.summary import Group, Summary

#: What each metric means, for people.
WORDS = {
    "accuracy": "share of questions whose most probable option was right",
    "balanced_accuracy": "mean over the labels of the share right among them",
    "auroc": "how often a true case got more probability than a false one",
    "log_loss": "surprise at the right option, in nats",
    "brier": "squared error of the probabilities; up to 1 for yes/no, 2 for others",
    "ranked_probability": "squared error of the cumulative probabilities of levels",
    "spearman": "rank correlation of expected and right level",
    "ece": "mean gap between how sure and how often right; below its noise floor nothing is to be improved",
    "aurc": "mean error over all shares answered, most certain first",
    "coverage": "share that can be answered, most certain first, at the error named",
}
MOST_OPTIONS = 20


def environment() -> Environment:
    """Templates of this folder, autoescaped; a name that a page lacks is an error."""
    env = Environment(
        loader=PackageLoader("quaver.evaluate", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    env.filters["figure"] = figure
    env.filters["best"] = _best
    return env


def page(summary: Summary, verdicts: Sequence[Verdict] = (), title: str = "Evaluation") -> str:
    """The HTML document."""
    everything = summary.groups[0]
    manifest = {"asked": summary.manifest.asked, "noted": summary.manifest.noted}
    return (
        environment()
        .get_template("eval.html.j2")
        .render(
            title=title,
            s=summary,
            verdicts=verdicts,
            uniform={metric.name: metric.value for metric in summary.uniform},
            uniform_coherence={relation.relation: relation.violation for relation in summary.uniform_coherence},
            words=WORDS,
            shown={metric.name.partition("_at_")[0] for group in summary.groups for metric in group.metrics},
            plots=_plots(everything.items),
            matrices={group.name: _matrix(group) for group in summary.groups},
            manifest=json.dumps(manifest, indent=2, ensure_ascii=False),
        )
    )


def figure(value: float) -> str:
    """Three significant digits; a dash for what is not defined."""
    return "–" if math.isnan(value) else f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"


def _plots(items: Sequence[Item]) -> list[dict[str, Any]]:
    found = []
    for kind in sorted({item.kind for item in items}):
        part = [item for item in items if item.kind == kind]
        caption = f"Reliability of {kind} answers (n = {len(part)}): dots on the dashed line are what they say."
        found.append({"svg": plots.reliability(part), "caption": caption})
    caption = "Risk and coverage: what abstaining from the least certain answers buys. Dotted: a perfect order."
    found.append({"svg": plots.risk_curve(columns(items)), "caption": caption})
    return found


def _matrix(group: Group) -> str:
    """The confusion matrix of items that share their options, where it is small enough to read."""
    options = {item.options for item in group.items}
    if len(options) != 1 or not 1 < len(next(iter(options))) <= MOST_OPTIONS:
        return ""
    return plots.confusion(group.items)


def _best(item: Item) -> str:
    best = max(range(len(item.probabilities)), key=item.probabilities.__getitem__)
    return f"{item.options[best]} {item.probabilities[best]:.3f}"
