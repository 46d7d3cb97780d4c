"""Replies beside each other."""

from __future__ import annotations

import math
from typing import Any


def differences(one: Any, other: Any, tolerance: float, path: str = "") -> list[str]:
    """Where two replies differ in more than the last digits of a number. What was cached is each engine's own."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        keys = [key for key in one if key != "cached_tokens"]
        return [line for key in keys for line in differences(one[key], other[key], tolerance, f"{path}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, tolerance, f"{path}/{i}")]
    numbers = isinstance(one, float) and isinstance(other, float)
    same = math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-9) if numbers else one == other
    return [] if same else [f"{path}: {one!r} and {other!r}"]
