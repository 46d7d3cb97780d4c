"""Requests made up from a seed, with the shares of new states and of common questions that caches live by."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

TEXT = """
    the order parcel invoice driver customer window engine report morning garden refund delay broken late arrived
    asked called wrote returned charged twice never again after before under between quickly kindly red small large
    account number street ticket screen battery signal coffee river winter please because although without manager
    team result answer question office kitchen train station platform letter package address phone
"""
WORDS = TEXT.split()


@dataclass(frozen=True, slots=True)
class Workload:
    """Shares are of requests, 0 to 1: ``new_states`` with a state never sent before, the others with one of
    ``pool`` repeated ones; ``shared_schemas`` with the questions that all of them have in common.

    ``words`` is the length of a state; ``options`` that of a choice. Request ``i`` is the same in every run.
    """

    new_states: float = 0.5
    shared_schemas: float = 0.5
    words: int = 200
    questions: int = 4
    options: int = 4
    pool: int = 16
    seed: int = 0

    def body(self, i: int) -> dict[str, Any]:
        """Request ``i`` as a ``/v1/systemone`` body."""
        rng = random.Random(f"{self.seed} request {i}")
        state = f"new {i}" if rng.random() < self.new_states else f"pool {rng.randrange(self.pool)}"
        schema = "common" if rng.random() < self.shared_schemas else f"own {i}"
        return {"state": self._text(f"state {state}", self.words), "questions": self._schema(schema)}

    def _schema(self, name: str) -> dict[str, Any]:
        """A yes/no question, a choice, a score, and again."""
        made: dict[str, Any] = {}
        for q in range(self.questions):
            text = self._text(f"question {name} {q}", 8)
            question: dict[str, Any] = {"type": ("noul", "choice", "score")[q % 3], "instructions": f"{text}?"}
            if question["type"] == "choice":
                words = [self._text(f"option {name} {q} {o}", 2) for o in range(self.options)]
                question["criteria"] = {f"{word} {o}": None for o, word in enumerate(words)}
            elif question["type"] == "score":
                question["criteria"] = ["none", "some", "much"]
            made[f"q{q}"] = question
        return made

    def _text(self, name: str, words: int) -> str:
        rng = random.Random(f"{self.seed} {name}")
        return " ".join(rng.choices(WORDS, k=words))
