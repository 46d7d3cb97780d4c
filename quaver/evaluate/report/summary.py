"""A run file to everything that its reports print."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from quaver.evaluate.coherence import Coherence, coherence
from quaver.evaluate.metrics import Item, Metric, measure
from quaver.evaluate.run import Manifest, Outcome

#: Questions with a section of their own; more would make a page that nobody reads.
MOST_QUESTIONS = 30
WORST = 20


@dataclass(frozen=True, slots=True)
class Group:
    """Items with the metrics of all of them: all, those of one type, or those of one question."""

    name: str
    items: tuple[Item, ...]
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """``uniform`` and ``uniform_coherence``: what a predictor scores that always answers uniformly.

    ``errors`` counts by kind and message; ``warnings`` are sentences about what makes the numbers doubtful.
    """

    manifest: Manifest
    models: tuple[str, ...]
    records: int
    retries: int
    errors: Mapping[str, int]
    warnings: tuple[str, ...]
    groups: tuple[Group, ...]
    uniform: tuple[Metric, ...]
    coherence: tuple[Coherence, ...]
    uniform_coherence: tuple[Coherence, ...]
    worst: tuple[tuple[Item, Outcome], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": {"digest": self.manifest.digest, "asked": self.manifest.asked, "noted": self.manifest.noted},
            "models": self.models,
            "records": self.records,
            "retries": self.retries,
            "errors": self.errors,
            "warnings": self.warnings,
            "metrics": {group.name: _metrics_json(group.metrics) for group in self.groups},
            "uniform": _metrics_json(self.uniform),
            "coherence": [asdict(relation) for relation in self.coherence],
            "uniform_coherence": [asdict(relation) for relation in self.uniform_coherence],
        }


def summarise(manifest: Manifest, outcomes: Sequence[Outcome], risk: float = 0.05) -> Summary:
    """Everything about a run. ``outcomes`` must hold at least one labelled question."""
    real = [outcome for outcome in outcomes if outcome.variant is None]
    items = [item for outcome in real for item in outcome.items]
    errors = Counter(outcome.error for outcome in outcomes if outcome.error)
    return Summary(
        manifest,
        tuple(sorted({outcome.model for outcome in outcomes if outcome.model})),
        len(real),
        sum(outcome.attempts - 1 for outcome in outcomes),
        dict(errors.most_common()),
        tuple(_warnings(real, items)),
        tuple(Group(name, tuple(part), tuple(measure(part, risk))) for name, part in _parts(items)),
        tuple(measure([replace(item, probabilities=_even(len(item.options))) for item in items], risk)),
        tuple(coherence(outcomes)),
        tuple(coherence([_uniform(outcome) for outcome in outcomes])),
        tuple(_worst(real)),
    )


def _parts(items: Sequence[Item]) -> Iterable[tuple[str, list[Item]]]:
    yield "all", list(items)
    kinds = sorted({item.kind for item in items})
    if len(kinds) > 1:
        for kind in kinds:
            yield kind, [item for item in items if item.kind == kind]
    names = list(dict.fromkeys(item.question for item in items))
    if len(kinds) < len(names) <= MOST_QUESTIONS:
        for name in names:
            yield f"question {name}", [item for item in items if item.question == name]


def _warnings(outcomes: Sequence[Outcome], items: Sequence[Item]) -> Iterable[str]:
    """Signs that the numbers are not those of a working model on these data."""
    failed = sum(item.failed for item in items)
    if failed:
        yield f"{failed} of {len(items)} labelled questions got no answer and count as wrong."
    cut = sum(outcome.truncated_tokens > 0 for outcome in outcomes)
    if cut:
        yield f"{cut} of {len(outcomes)} states were too long and were read without their end."
    calibrations = {outcome.calibration for outcome in outcomes if not outcome.error}
    if len(calibrations) > 1:
        yield "Some answers were calibrated and some were not, or by different calibrations."
    answered = [item for item in items if not item.failed and len(item.options) > 1]
    even = sum(max(item.probabilities) - min(item.probabilities) < 1e-6 for item in answered)
    if answered and even > 0.05 * len(answered):
        yield f"{even} of {len(answered)} answers are uniform: the model says nothing about them."
    for name in dict.fromkeys(item.question for item in answered):
        same = [item for item in answered if item.question == name]
        if len(same) >= 20 and len({item.probabilities for item in same}) == 1:
            yield f"Question {name} got the same probabilities in all {len(same)} records."


def _worst(outcomes: Sequence[Outcome]) -> list[tuple[Item, Outcome]]:
    """Labelled questions by how little probability the right option got; failures come first."""
    pairs = [(item, outcome) for outcome in outcomes for item in outcome.items]
    pairs.sort(key=lambda pair: pair[0].settled[pair[0].label])
    return pairs[:WORST]


def _uniform(outcome: Outcome) -> Outcome:
    return replace(outcome, answers={name: _even(len(p)) for name, p in outcome.answers.items()})


def _even(options: int) -> tuple[float, ...]:
    return (1 / options,) * options


def _metrics_json(metrics: Sequence[Metric]) -> dict[str, Any]:
    """Metrics by name; JSON has no NaN, so a metric that is not defined is null."""
    fields = ("value", "low", "high", "n", "floor")
    return {
        metric.name: {
            field: None if isinstance(value := getattr(metric, field), float) and math.isnan(value) else value
            for field in fields
        }
        for metric in metrics
    }
