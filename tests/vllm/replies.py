"""Replies beside each other."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from quaver.decider import Decider


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


def beside_vllms_route(
    url: str, decider: Decider[Any], body: dict[str, Any], tolerance: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``/v1/systemone`` of vLLM itself and ``decider`` answer: equal tokens, probabilities within ``tolerance``
    and label masses within ten times as much of themselves."""
    reply = httpx.post(f"{url}/v1/systemone", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    expected, answered = reply.json(), decider.systemone(body)
    assert answered["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    for name, answer in expected["answers"].items():
        own = answered["answers"][name]
        # Theirs has the probabilities of a noul by label.
        got = own.get("probabilities") or {"yes": own["noul"], "no": 1 - own["noul"]}
        assert got == pytest.approx(answer["probabilities"], abs=tolerance)
    masses = {name: facts["label_mass"] for name, facts in expected["diagnostics"].items()}
    assert answered["x_label_mass"] == pytest.approx(masses, rel=10 * tolerance)
    return expected, answered
