"""Options of how Gemma 4 sees: what is told before any weight is read."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from quaver.cli.main import app
from quaver.errors import BadRequest

ASK = ["ask", "a state", "--noul", "Is it?"]


@pytest.mark.parametrize("command", [["serve", "embedded"], ASK], ids=["serve", "ask"])
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--image-budget", "70"], "has no image_budget; leave it out"),
        (["--no-bidirectional"], "has no bidirectional; leave it out"),
        (["--bidirectional-full-layers"], "has no bidirectional_full_layers"),
        (["--fp32-layernorm"], "has no fp32_layernorm_statistics"),
        (["--fp32-vision"], "has no fp32_vision_embedder"),
        (["--sliding-window", "9"], "has no sliding_window"),
        (["--image-budget", "71"], "70, 140, 280, 560, 1120 tokens at most, got 71"),
        (["--no-bidirectional", "--bidirectional-full-layers"], "leave bidirectional on"),
    ],
)
def test_a_model_without_knobs_refuses_them(command: list[str], flags: list[str], told: str) -> None:
    error = CliRunner().invoke(app, [*command, *flags]).exception
    assert isinstance(error, BadRequest) and told in str(error)
