"""Relations that must hold between answers to related questions, whatever the right answer is.

======================  ==================================================  ==============================
relation                what is asked besides the original                  what must hold
======================  ==================================================  ==============================
``negation``            the negated yes/no question                         the probabilities swap
``option_order``        the options of a choice in reverse                  nothing changes
``paraphrase``          the record's other wording, or a neutral frame      nothing changes
``irrelevant_option``   one more option of a choice that never fits         the odds of the others stay
``batch``               the question without the others of its record      nothing changes
======================  ==================================================  ==============================

A violation is the total variation distance (0 to 1) between the original probabilities and the
related ones brought back to the original options. A guess that is always uniform violates none of
them, so its violation and its quality stand beside the model's: coherence counts only on top of quality.
The relations are those of metamorphic testing (Chen et al. 1998) and of consistency checks of
forecasters (Fluri et al. 2023, arXiv 2306.09983).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quaver.evaluate.records import Record, Variant
from quaver.evaluate.run import Outcome
from quaver.questions import Choice, Json, Noul, Question

IRRELEVANT = "purple elephant on the moon"
RELATIONS = ("negation", "option_order", "paraphrase", "irrelevant_option", "batch")


@dataclass(frozen=True, slots=True)
class Coherence:
    """``n`` pairs; ``violation`` is their mean total variation with its interval, ``flips`` the share whose
    best option changed."""

    relation: str
    n: int
    violation: float
    low: float
    high: float
    flips: float


def variants(records: Sequence[Record]) -> list[Record]:
    """Every relation of every question it fits, as records without labels; ids are ``id~relation~question``."""
    return [
        replace(
            record,
            id=f"{record.id}~{relation}~{name}",
            questions={name: asked},
            labels={},
            paraphrases={},
            variant=Variant(record.id, relation, name),
        )
        for record in records
        for name, question in record.questions.items()
        for relation, asked in _related(record, name, question)
    ]


def coherence(outcomes: Sequence[Outcome], seed: int = 0) -> list[Coherence]:
    """How far each relation is violated, over the pairs of which both were answered."""
    originals = {outcome.record: outcome for outcome in outcomes if outcome.variant is None}
    pairs: dict[str, list[tuple[str, float, bool]]] = {}
    for outcome in outcomes:
        variant = outcome.variant
        if variant is None or variant.of not in originals or not outcome.answers:
            continue
        before = originals[variant.of].answers.get(variant.question)
        if before:
            after = BACK[variant.relation](outcome.answers[variant.question])
            flipped = int(np.argmax(before)) != int(np.argmax(after))
            pairs.setdefault(variant.relation, []).append((variant.of, total_variation(before, after), flipped))
    rng = np.random.default_rng(seed)
    return [_summary(relation, pairs[relation], rng) for relation in RELATIONS if relation in pairs]


def total_variation(p: Sequence[float], q: Sequence[float]) -> float:
    """Half the summed absolute difference, 0 to 1."""
    return 0.5 * sum(abs(a - b) for a, b in zip(p, q, strict=True))


def _related(record: Record, name: str, question: Question) -> Iterator[tuple[str, Question]]:
    text = question.instructions
    if isinstance(question, Noul) and isinstance(text, str) and not question.criteria:
        yield "negation", replace(question, instructions=f"Is the answer to this question no? {text}")
    if isinstance(question, Choice) and len(question.option_ids) > 1:
        options = dict(question.criteria) if isinstance(question.criteria, Mapping) else {}
        yield "option_order", replace(question, criteria=dict(reversed(options.items())))
        if IRRELEVANT not in options and len(options) < 255:
            yield "irrelevant_option", replace(question, criteria={**options, IRRELEVANT: None})
    if name in record.paraphrases or isinstance(text, str):
        yield "paraphrase", replace(question, instructions=_reworded(record.paraphrases.get(name), text))
    if len(record.questions) > 1:
        yield "batch", question


def _reworded(given: Json, text: Json) -> Json:
    return given if given is not None else f"Please answer this question: {text}"


def _same(p: Sequence[float]) -> Sequence[float]:
    return p


def _reversed(p: Sequence[float]) -> Sequence[float]:
    return p[::-1]


def _without_last(p: Sequence[float]) -> Sequence[float]:
    rest = sum(p[:-1])
    return [x / rest for x in p[:-1]] if rest > 0 else [1 / (len(p) - 1)] * (len(p) - 1)


#: Brings the probabilities of a variant back to the options of its original.
BACK: Mapping[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "negation": _reversed,
    "option_order": _reversed,
    "paraphrase": _same,
    "irrelevant_option": _without_last,
    "batch": _same,
}


def _summary(relation: str, pairs: Sequence[tuple[str, float, bool]], rng: np.random.Generator) -> Coherence:
    records, violations, flipped = zip(*pairs, strict=True)
    # Pairs of one record go wrong together, so records are resampled, as in ``metrics.bootstrap``.
    record = np.unique(records, return_inverse=True)[1]
    sums, counts = np.bincount(record, violations), np.bincount(record)
    drawn = rng.integers(len(counts), size=(1000, len(counts)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [2.5, 97.5])
    mean, flips = sums.sum() / len(pairs), sum(flipped) / len(pairs)
    return Coherence(relation, len(pairs), float(mean), float(low), float(high), flips)
