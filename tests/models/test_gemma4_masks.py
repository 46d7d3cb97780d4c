"""The table of transformers' masks in the documentation is what the example prints, and says what differs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import transformers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gemma4.md").read_text()


def test_the_documented_table_is_what_transformers_does(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples/gemma4_masks.py"))
    example["main"]()
    heading, table = capsys.readouterr().out.split("\n\n")
    assert heading == f"transformers {transformers.__version__}, window 16"
    assert f"With transformers {transformers.__version__}:\n\n{table}" in PAGE, "run examples/gemma4_masks.py again"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    other = {(kind, path, layers) for kind, path, _, layers, _, released in rows if released != "yes"}
    paths = ("forward", "generate, dynamic cache")
    assert other == {("gemma4_unified", path, layers) for path in paths for layers in ("full", "sliding")}
