"""Two corrections of the bias toward a label or a place, on the probabilities of label reads.

*Prior subtraction* reads the same question of a state that says nothing and divides by what the model
answers there (contextual calibration, Zhao et al. 2021, arXiv:2102.09690). *Order averaging* reads the
options in several orders and averages what each option got.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quaver.heads.labels import normalised


@dataclass(frozen=True, slots=True)
class OrderAverage:
    """``probabilities`` of the options and, of each, the ``spread``: its largest less its smallest over the orders."""

    probabilities: tuple[float, ...]
    spread: tuple[float, ...]


def subtract_prior(log_probabilities: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    """Probabilities of the labels, corrected by ``prior``, their log-probabilities for a state that says nothing.

    Both must be of the same question with its options in the same order; a constant in either changes
    nothing. Raises ValueError for different lengths and for a prior that rules a label out.
    """
    if not all(math.isfinite(value) for value in prior):
        raise ValueError("a prior must give every label some probability; one of these has none")
    return normalised([value - known for value, known in zip(log_probabilities, prior, strict=True)])


def cyclic_orders(options: int, count: int) -> tuple[tuple[int, ...], ...]:
    """``count`` rotations of ``range(options)``, evenly apart, the first as it is; all of them when there are fewer.

    Over all rotations every option stands in every place once.
    """
    count = max(1, min(count, options))
    # Evenly apart, so that the places of an option differ as much as they can.
    starts = (i * options // count for i in range(count))
    return tuple(tuple((start + place) % options for place in range(options)) for start in starts)


def average_orders(probabilities: Sequence[Sequence[float]], orders: Sequence[Sequence[int]]) -> OrderAverage:
    """Mean over reads; ``orders[r][place]`` is the option that ``probabilities[r][place]`` belongs to.

    Raises ValueError when there is no read, or when an order is not a permutation of the options.
    """
    options = range(len(orders[0]) if orders else 0)
    by_option: list[list[float]] = [[] for _ in options]
    for row, order in zip(probabilities, orders, strict=True):
        if sorted(order) != list(options):
            raise ValueError(f"{list(order)} is not an order of {len(options)} options")
        for value, option in zip(row, order, strict=True):
            by_option[option].append(value)
    if not by_option:
        raise ValueError("an average needs at least one read")
    return OrderAverage(
        tuple(math.fsum(values) / len(values) for values in by_option),
        tuple(max(values) - min(values) for values in by_option),
    )
