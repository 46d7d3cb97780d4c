"""The softcap ``cap * tanh(scores / cap)``, safe for every number a model can make.

torch's own tanh neither overflows nor hides NaN, and is closer than any form made of exponentials
(``benchmarks/softcap.py``). Kernels without a tanh use the one in ``softcap_triton``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def softcap(scores: Tensor, cap: float) -> Tensor:
    """``scores`` of any shape and float dtype, bounded to ``[-cap, cap]``, in the same dtype.

    Computed in float32 (float64 stays float64). Odd to the bit, never falling, and before the result is
    rounded to its dtype within ``1.6e-7 * cap`` of the exact value; +-inf gives +-cap, NaN stays NaN.
    Raises ValueError unless ``cap`` is positive and finite.
    """
    check_cap(cap)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (cap * torch.tanh(wide / cap)).to(scores.dtype)


def check_cap(cap: float) -> None:
    """Raises ValueError unless ``cap`` is positive and finite."""
    if not 0 < cap < math.inf:
        raise ValueError(f"a softcap must be positive and finite, got {cap}; leave it out where there is none")
