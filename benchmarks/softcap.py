"""Error of softcap forms against float64, in float32: ``python benchmarks/softcap.py [--cap 50] [--points 800000]``.

Each cell: the largest error in units in the last place of the result / the largest absolute error. The
forms are written as kernels have them, evaluated left to right with torch's float32 exponential.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from quaver.heads.softcap import softcap


def quotient(scores: Tensor, cap: float) -> Tensor:
    y = scores / cap
    up, down = torch.exp(y), torch.exp(-y)
    return cap * (up - down) / (up + down)


def clamped(scores: Tensor, cap: float) -> Tensor:
    return quotient((scores / cap).clamp(-30, 30) * cap, cap)


def shifted(scores: Tensor, cap: float) -> Tensor:
    return cap * (1 - 2 / (torch.exp(2 * (scores / cap)) + 1))


def sigmoid(scores: Tensor, cap: float) -> Tensor:
    return cap * (2 * torch.sigmoid(2 * (scores / cap)) - 1)


def kernel(scores: Tensor, cap: float) -> Tensor:
    """What ``quaver.heads.softcap_triton`` computes."""
    y = scores / cap
    t = torch.exp(-2 * y.abs())
    bounded = cap * (1 - t) / (1 + t)
    return torch.where(y < 0, -bounded, bounded)


FORMS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "(e^y-e^-y)/(e^y+e^-y)": quotient,
    "same, y within 30": clamped,
    "1-2/(e^2y+1)": shifted,
    "2 sigmoid(2y)-1": sigmoid,
    "(1-t)/(1+t), t=e^-2|y|": kernel,
    "quaver.heads.softcap": softcap,
}
RANGES = (1e-30, 1e-6, 1e-4, 1e-2, 0.1, 0.625, 2.0, 9.02, 30.0, 84.8, 88.72, 1e4)


def scores_between(low: float, high: float, points: int, cap: float) -> Tensor:
    """Float32 scores whose quotient by ``cap`` runs from ``low`` to ``high``: by ratio below 1, evenly above."""
    if high <= 1:
        y = torch.logspace(
            *torch.tensor([low, high], dtype=torch.float64).log10().tolist(), points, dtype=torch.float64
        )
    else:
        y = torch.linspace(low, high, points, dtype=torch.float64)
    return (y * cap).float()


def error(form: Callable[[Tensor, float], Tensor], scores: Tensor, cap: float) -> str:
    exact = cap * torch.tanh(scores.double() / cap)
    got = form(scores, cap)
    if got.isnan().any():
        return f"NaN ({got.isnan().double().mean():.0%})"
    if got.isinf().any():
        return "inf"
    nearest = exact.float()
    ulp = torch.nextafter(nearest, torch.tensor(torch.inf)) - nearest
    off = (got.double() - exact).abs()
    return f"{(off / ulp.double()).max():.3g} / {off.max():.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Error of softcap forms against float64.")
    parser.add_argument("--cap", type=float, default=50.0)
    parser.add_argument("--points", type=int, default=800_000, help="scores in each range")
    arguments = parser.parse_args()
    table = Table("|y|", *FORMS, title=f"cap {arguments.cap:g}: largest error in ulp / absolute")
    for low, high in pairwise(RANGES):
        scores = scores_between(low, high, arguments.points, arguments.cap)
        table.add_row(f"{low:g}..{high:g}", *(error(form, scores, arguments.cap) for form in FORMS.values()))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
