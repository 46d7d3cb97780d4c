"""A tiny Decision 3.0 checkpoint with random weights, in the published layout."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import torch
from safetensors.torch import save_file
from seeing_release import seeing_release

CODES = [*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2))][:255]
CONFIG: dict[str, Any] = {
    "format_version": 1,
    "format_id": "d3-code-readout-v1",
    "prompt": "d3",
    "codes": CODES,
    "token_ids": list(range(255)),
    "temperature": 0.75,
    "pooling": "last",
    "max_length": 2500,
    "readout_dtype": "float32",
}


def d3_release(to: Path, mode: str = "causal", **changes: Any) -> Path:
    """A release in ``to`` with an ``attention_mode`` and ``changes`` of its decision config."""
    folder = seeing_release(to, "bare")
    readout = torch.randn(255, 64, generator=torch.Generator().manual_seed(5)) / 8
    save_file({"weight": readout}, folder / "readout.safetensors")
    (folder / "decision_config.json").write_text(json.dumps({**CONFIG, "attention_mode": mode, **changes}))
    return folder
