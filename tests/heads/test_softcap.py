"""The softcap and its Triton kernel, interpreted, against float64: bounds, oddness, order, special values."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from quaver.heads.softcap import softcap

CAPS = [1.0, 20.0, 30.0, 50.0]
SPECIAL = [0.0, 1.0, 4239.0, 4241.0, 4400.0, 4437.0, 1e30, float("inf")]


def interpreted() -> Callable[[Tensor, float], Tensor]:
    pytest.importorskip("triton")
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
    from quaver.heads.softcap_triton import softcap_fused

    return softcap_fused


@pytest.fixture(params=["torch", "triton"])
def form(request: Any) -> Callable[[Tensor, float], Tensor]:
    return softcap if request.param == "torch" else interpreted()


def grid(cap: float) -> Tensor:
    """20,000 scores from tiny to far beyond where exp overflows, ascending."""
    return torch.cat([torch.logspace(-30, 0, 10_000), torch.linspace(1.0001, 100, 10_000)]) * cap


@pytest.mark.parametrize("cap", CAPS)
def test_near_float64_bounded_odd_and_ordered(form: Callable[[Tensor, float], Tensor], cap: float) -> None:
    scores = grid(cap)
    got = form(scores, cap)
    exact = cap * torch.tanh(scores.double() / cap)
    assert (got.double() - exact).abs().max() <= 1.6e-7 * cap
    assert got.abs().max() <= cap
    assert torch.equal(form(-scores, cap), -got)
    assert (got.diff() >= 0).all()


@pytest.mark.parametrize("cap", CAPS)
def test_special_values(form: Callable[[Tensor, float], Tensor], cap: float) -> None:
    scores = torch.tensor([*SPECIAL, *(-value for value in SPECIAL), float("nan")])
    got = form(scores, cap)
    assert got[:-1].isfinite().all()
    assert got[-1].isnan(), "NaN must stay visible"
    assert got[[7, 15]].tolist() == [cap, -cap]
    assert got[[0, 8]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_keeps_shape_and_dtype(form: Callable[[Tensor, float], Tensor], dtype: torch.dtype) -> None:
    scores = torch.linspace(-300, 300, 3 * 41).to(dtype).reshape(3, 41)
    got = form(scores, 30.0)
    exact = (30 * torch.tanh(scores.double() / 30)).to(dtype)
    assert (got.dtype, got.shape) == (dtype, scores.shape)
    # One step of the dtype between 16 and 32: a value near the border of two may go to either.
    assert (got.double() - exact.double()).abs().max() <= max(torch.finfo(dtype).eps * 16, 1.6e-7 * 30)


def test_float64_stays_float64() -> None:
    scores = torch.linspace(-300, 300, 1000, dtype=torch.float64)
    torch.testing.assert_close(softcap(scores, 30.0), 30 * torch.tanh(scores / 30), rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match="float64"):
        interpreted()(scores, 30.0)


def test_one_huge_score_does_not_spoil_its_row(form: Callable[[Tensor, float], Tensor]) -> None:
    """4241 at cap 50 is where the quotient of exponentials gives inf and so a row of NaN."""
    row = form(torch.tensor([4241.0, 40.0, -3.0, 0.5]), 50.0)
    weights = torch.softmax(row, -1)
    exact = torch.softmax(50 * torch.tanh(torch.tensor([4241.0, 40.0, -3.0, 0.5], dtype=torch.float64) / 50), -1)
    torch.testing.assert_close(weights.double(), exact, rtol=2e-5, atol=0)


@pytest.mark.parametrize("cap", [0.0, -30.0, float("inf"), float("nan")])
def test_a_cap_that_caps_nothing_is_refused(form: Callable[[Tensor, float], Tensor], cap: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        form(torch.ones(2), cap)
