"""The table shows every answer with a bar as long as its probability."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from quaver.cli.table import BAR_WIDTH, answers_table

REPLY: dict[str, Any] = {
    "model": "quaver-mini-1",
    "answers": {
        "late": {"type": "noul", "noul": 0.75},
        "queue": {
            "type": "choice",
            "choice": "o7",
            "confidence": 0.4,
            "probabilities": {f"o{i}": 0.5 if i == 7 else 0.5 / 19 for i in range(20)},
        },
        "heat": {
            "type": "score",
            "score": 0.6,
            "confidence": 0.2,
            "legend": {"0": "calm", "1": {"mood": "furious"}},
            "probabilities": {"0": 0.4, "1": 0.6},
        },
    },
    "usage": {"input_tokens": 30, "output_tokens": 0},
    "x_truncated": {"state_tokens": 5},
}


def printed(reply: dict[str, Any], width: int) -> str:
    console = Console(width=width, file=StringIO(), record=True)
    console.print(answers_table(reply))
    return console.export_text()


def test_table() -> None:
    text = printed(REPLY, 110)
    for shown in ("75.0%", "25.0%", "o7", "50.0%", "... 8 more options", "score 0.60 of 1", "{'mood': 'furious'}"):
        assert shown in text
    assert "the last 5 tokens of the state did not fit" in text.replace("\n", " ")


@pytest.mark.parametrize("width", [30, 45, 80, 200])
def test_narrow_terminals_lose_bars_before_words_and_numbers(width: int) -> None:
    lines = printed(REPLY, width).splitlines()
    assert max(map(len, lines)) <= width
    for number in ("75.0%", "25.0%", "50.0%", "40.0%", "60.0%"):
        assert any(number in line for line in lines)
    assert any("late" in line for line in lines)


@pytest.mark.parametrize(
    ("probability", "cells"), [(0.5, BAR_WIDTH // 2), (0.75, BAR_WIDTH * 3 // 4), (1.0, BAR_WIDTH)]
)
def test_bars_are_as_long_as_the_probability(probability: float, cells: int) -> None:
    reply = {**REPLY, "answers": {"late": {"type": "noul", "noul": probability}}}
    first = next(line for line in printed(reply, 120).splitlines() if "yes" in line)
    assert first.count("█") == cells
