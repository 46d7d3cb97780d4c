"""The softcap inside Triton kernels, which have no tanh of their own.

One exponential of a non-positive number, so nothing overflows: quotients of ``exp(y)`` give inf from
``y = 84.8`` (cap 50) and NaN from 88.7. There is no clamp, because Triton's turns NaN into a bound and
so hides the fault that made it. Needs the ``triton`` package; nothing else in Quaver does.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quaver.heads.softcap import check_cap

BLOCK = 1024


@triton.jit
def apply_softcap(scores, cap):
    """``cap * tanh(scores / cap)`` of a float32 block, to ``1.6e-7 * cap``; NaN stays NaN."""
    y = scores / cap
    # tanh is odd, so the sign is put back at the end.
    t = tl.exp(-2.0 * tl.abs(y))
    bounded = cap * (1.0 - t) / (1.0 + t)
    return tl.where(y < 0, -bounded, bounded)


@triton.jit
def _elementwise(scores, out, count, cap, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    values = tl.load(scores + at, mask=inside).to(tl.float32)
    tl.store(out + at, apply_softcap(values, cap), mask=inside)


def softcap_fused(scores: Tensor, cap: float) -> Tensor:
    """As ``quaver.heads.softcap.softcap`` in one pass over memory, for float16, bfloat16 and float32.

    Raises ValueError for float64, and unless ``cap`` is positive and finite.
    """
    check_cap(cap)
    if scores.dtype == torch.float64:
        raise ValueError("the fused softcap computes in float32; use quaver.heads.softcap for float64")
    # The kernel walks through memory in order.
    scores = scores.contiguous()
    out = torch.empty_like(scores)
    _elementwise[(triton.cdiv(scores.numel(), BLOCK),)](scores, out, scores.numel(), cap, BLOCK)
    return out
