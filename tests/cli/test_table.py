"""The table shows every answer with a bar as long as its probability."""

from typing import Any

import pytest
from rich.console import Console

from quaver.cli.table import BAR_WIDTH, answers_table, bar

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


def test_table() -> None:
    console = Console(width=110, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(answers_table(REPLY))
    text = console.export_text()
    for shown in ("75.0%", "25.0%", "o7", "50.0%", "... 8 more options", "score 0.60 of 1", "{'mood': 'furious'}"):
        assert shown in text
    assert "the last 5 tokens of the state did not fit" in text.replace("\n", " ")


@pytest.mark.parametrize(("probability", "cells"), [(0, 0), (0.5, BAR_WIDTH // 2), (1, BAR_WIDTH)])
def test_bar(probability: float, cells: int) -> None:
    assert bar(probability) == "█" * cells


def test_bar_grows_in_eighths() -> None:
    assert bar(1 / (BAR_WIDTH * 8)) == "▏"
