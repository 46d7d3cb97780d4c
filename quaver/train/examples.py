"""One training example, and the small helpers that all families of examples share."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from quaver.questions import Json, Question


@dataclass(frozen=True, slots=True)
class Example:
    """A question about a state with the wanted probability of each option.

    ``topical`` marks texts whose vectors should stay near the untrained encoder's.
    """

    family: str
    state: Json
    question: Question
    target: tuple[float, ...]
    topical: bool = False


def one_hot(index: int, size: int) -> tuple[float, ...]:
    """Certainty for one option."""
    return tuple(float(i == index) for i in range(size))


def yes(probability: float) -> tuple[float, float]:
    """The target of a noul."""
    return probability, 1 - probability


def window(text: str, words: int, rng: random.Random) -> str:
    """At most ``words`` words; half of the time the beginning, else one of the next three such runs."""
    parts = text.split()
    runs = min(3, len(parts) // words - 1)
    start = words * rng.randint(1, runs) if runs > 0 and rng.random() < 0.5 else 0
    return " ".join(parts[start : start + words])


def worn(text: str, rng: random.Random) -> str:
    """The text, three times in ten lowercased with letters only, as many corpora come."""
    return re.sub(r"[^a-z]+", " ", text.lower()).strip() if rng.random() < 0.3 else text


def pick(options: Sequence[str], rng: random.Random, noun: Sequence[str] = ("text",)) -> str:
    """One wording with ``{x}`` filled by one of the nouns."""
    return rng.choice(options).format(x=rng.choice(noun))
