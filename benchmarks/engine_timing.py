"""Seconds, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch

Seconds = dict[str, list[float]]


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    rounds: int,
    sides: Callable[[int], Mapping[Any, Callable[[], object]]],
    before: Callable[[], object] = lambda: None,
) -> Seconds:
    """Seconds of every side in every round; every second round turns their order, so that none is always first.

    ``sides`` gives the work of a round by its number; ``before`` comes before every turn and is not timed.
    """
    measured: Seconds = {}
    for number in range(rounds):
        works = sides(number)
        for name in list(works)[:: -1 if number % 2 else 1]:
            before()
            measured.setdefault(name, []).append(seconds(works[name]))
    return measured


def medians(measured: Seconds) -> dict[str, float]:
    return {name: median(values) for name, values in measured.items()}


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def matrix_peak(dtype: torch.dtype, device: str = "cpu", size: int = 2048, repeats: int = 5) -> float:
    """The most floating point operations per second that a product of square matrices got of the machine."""
    a, b = torch.rand(2, size, size, device=device, dtype=dtype)

    def product() -> None:
        torch.mm(a, b)
        if device == "cuda":
            torch.cuda.synchronize()

    product()
    return 2.0 * size**3 / min(seconds(product) for _ in range(repeats))
