"""Probabilities to answers: argmax, expectation, confidence.

Two definitions of confidence are in use, under one name: the one of TypeSafe's adapter
(``typesafe``, 0 for a uniform distribution, 1 for certainty) and the largest probability
(``max``, what the Clef reference prints). Both are here; an answer states which one it carries.
Sources: ``system-one-adapter`` 0.2.1 ``confidence_metrics.py``; Clef's ``joint_schema_model.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from quaver.questions.kinds import Choice, Json, Noul, Question, Score

ConfidenceRule = Literal["typesafe", "max"]


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """``probability`` is that of *true*."""

    probability: float


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """``probabilities`` are in request order and sum to 1; ``choice`` is the first largest."""

    choice: str
    probabilities: Mapping[str, float]
    confidence: float


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """``score`` is the expected level index, 0 to n-1; ``levels`` echoes the question's criteria."""

    score: float
    probabilities: tuple[float, ...]
    levels: tuple[Json, ...]
    confidence: float


Answer = NoulAnswer | ChoiceAnswer | ScoreAnswer


def answer(question: Question, probabilities: Sequence[float], rule: ConfidenceRule = "typesafe") -> Answer:
    """The answer to ``question`` given one probability per option, in ``question.option_ids`` order."""
    p = tuple(float(x) for x in probabilities)
    match question:
        case Noul():
            # No confidence: neither dialect has one for a yes/no answer.
            return NoulAnswer(p[0])
        case Choice():
            best = argmax(p)
            confidence = choice_confidence(p) if rule == "typesafe" else p[best]
            return ChoiceAnswer(question.option_ids[best], dict(zip(question.option_ids, p, strict=True)), confidence)
        case Score():
            confidence = score_confidence(p) if rule == "typesafe" else max(p)
            return ScoreAnswer(expectation(p), p, tuple(question.criteria), confidence)


def argmax(probabilities: Sequence[float]) -> int:
    """Index of the first largest probability."""
    # max keeps the first of equals, so a tie goes to the option that was asked first, as in the Clef releases.
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def expectation(probabilities: Sequence[float]) -> float:
    """Expected index."""
    return sum(i * p for i, p in enumerate(probabilities))


def choice_confidence(probabilities: Sequence[float]) -> float:
    """``(max p - 1/n) / (1 - 1/n)``, within 0 to 1; 1 for a single option."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    # Clamped, because probabilities sum to 1 only up to rounding.
    return min(1.0, max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n)))


def score_confidence(probabilities: Sequence[float]) -> float:
    """``max(0, 1 - spread/D)``; 1 for a single level.

    spread is the mean distance from the mode, D that of a uniform guess from the middle.
    """
    n = len(probabilities)
    if n == 1:
        return 1.0
    # The formula that TypeSafe published. Somebody who fitted live replies found that of a choice here too; the
    # conformance suite takes either.
    mode = argmax(probabilities)
    spread = sum(p * abs(i - mode) for i, p in enumerate(probabilities))
    uniform = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1 - spread / uniform)
