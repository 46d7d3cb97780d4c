"""Answer arithmetic against vectors computed by the reference and by TypeSafe's own formulas."""

import json
from pathlib import Path
from typing import Any

import pytest

from quaver.questions import Choice, ChoiceAnswer, Noul, NoulAnswer, Question, Score, ScoreAnswer, answer

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "golden/answers-cases.jsonl").open()]


def question(case: dict[str, Any]) -> Question:
    match case["type"]:
        case "noul":
            return Noul("?")
        case "choice":
            return Choice("?", dict.fromkeys(case["options"]))
        case _:
            return Score("?", [f"level {i}" for i in range(case["n"])])


def test_all_vectors_are_here() -> None:
    assert len(CASES) == 300


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_answers_equal_the_vectors(case: dict[str, Any]) -> None:
    typesafe = answer(question(case), case["probabilities"])
    largest = answer(question(case), case["probabilities"], "max")
    match typesafe:
        case NoulAnswer():
            assert typesafe.probability == pytest.approx(case["noul"], abs=1e-12)
            return
        case ChoiceAnswer():
            assert typesafe.choice == case["choice"]
            assert list(typesafe.probabilities) == case["options"]
        case ScoreAnswer():
            assert typesafe.score == pytest.approx(case["score"], abs=1e-12)
    assert not isinstance(largest, NoulAnswer)
    assert typesafe.confidence == pytest.approx(case["confidence_typesafe"], abs=1e-12)
    assert largest.confidence == pytest.approx(case["confidence_max_probability"], abs=1e-12)
