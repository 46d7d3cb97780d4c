"""Logits to probabilities, in float64 so that they sum to 1 as printed."""

from __future__ import annotations

import torch
from torch import Tensor


def probabilities(logits: Tensor) -> list[float]:
    """Softmax of logits [n], any float dtype, computed in float64."""
    values: list[float] = torch.softmax(logits.double(), dim=-1).tolist()
    return values
