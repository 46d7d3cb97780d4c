"""The release that comes with the package: its size, its files, and what it must never lose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import quaver
from quaver.engine.split import SplitReader
from quaver.prompts.split import SplitPrompt
from quaver.questions import Choice, Noul, Question, Score
from quaver.train import release

EMBEDDED = Path(quaver.__file__).parent / "embedded"


@pytest.fixture(scope="module")
def opened() -> tuple[SplitPrompt, SplitReader]:
    return release.open_reader(EMBEDDED)


def probabilities(
    opened: tuple[SplitPrompt, SplitReader], state: str, questions: Sequence[Question]
) -> list[list[float]]:
    prompt, reader = opened
    return [row.softmax(-1).tolist() for row in reader.read(prompt.encode(state, questions)).logits]


def test_it_stays_under_50_mb_and_says_what_it_is() -> None:
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir()) < 50_000_000
    config = json.loads((EMBEDDED / "config.json").read_text())
    assert (config["name"], config["reading"]) == ("quaver-mini", "split")
    assert [len(pair) for pair in config["temperatures"]] == [2, 2, 2]


def test_the_log_tells_all_stages() -> None:
    lines = [json.loads(line) for line in (EMBEDDED / "training-log.jsonl").read_text().splitlines()]
    plans = [line["plan"] for line in lines if "plan" in line]
    assert sum(plan["steps"] for plan in plans) == sum(25 for line in lines if "step" in line)


def test_it_tells_feeling_and_its_negation(opened: tuple[SplitPrompt, SplitReader]) -> None:
    asked = [Noul("Is the tone positive?"), Noul("Is the tone not positive?")]
    good = probabilities(opened, "I love this phone, best purchase of the year.", asked)
    bad = probabilities(opened, "Terrible service, I want my money back.", asked)
    assert good[0][0] > 0.8 > 0.2 > good[1][0]
    assert bad[1][0] > 0.8 > 0.2 > bad[0][0]


def test_scores_rise_with_feeling(opened: tuple[SplitPrompt, SplitReader]) -> None:
    scale = Score("How does the writer feel?", ["very bad", "bad", "neutral", "good", "very good"])
    texts = ("I hate it, it is awful.", "It is a table.", "I am so happy, it is wonderful!")
    rows = [probabilities(opened, text, [scale])[0] for text in texts]
    means = [sum(i * p for i, p in enumerate(row)) for row in rows]
    assert means == sorted(means)


def test_topics_that_it_was_never_trained_on(opened: tuple[SplitPrompt, SplitReader]) -> None:
    topic = Choice("What is it about?", ["volcanoes", "opera", "tax law", "gardening"])
    texts = (
        "Lava flowed down the slope.",
        "The soprano sang the aria.",
        "Deduct it on your return.",
        "Prune the roses.",
    )
    rows = [probabilities(opened, text, [topic])[0] for text in texts]
    assert [row.index(max(row)) for row in rows] == [0, 1, 2, 3]


def test_order_of_options_changes_nothing(opened: tuple[SplitPrompt, SplitReader]) -> None:
    names = ["billing", "shipping", "technical"]
    there, back = (
        probabilities(opened, "My parcel is late.", [Choice("team", order)])[0] for order in (names, names[::-1])
    )
    assert there == pytest.approx(back[::-1], abs=1e-5)
