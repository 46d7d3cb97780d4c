"""Causal attention of new tokens that go on from a past, by CPU kernels that know plain causal attention only."""

from __future__ import annotations

import torch
from torch import Tensor


def attend_after(query: Tensor, key: Tensor, value: Tensor, past: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """What new tokens make of a past and of themselves, [H, n, D].

    query [H, n, D]; key, value [Hk, n, D] of the new tokens and ``past`` those before them, [Hk, m, D], where
    H / Hk heads in a row share a key. All must be on the CPU.

    A mask over past and new tokens would be computed in full, what it hides included. The past is seen whole and
    the new tokens causally instead, and each part weighs as much as its sum has in the softmax over both.
    """
    before, before_sums = _attention(query, *past, scale, causal=False)
    own, own_sums = _attention(query, key, value, scale, causal=True)
    weight = (before_sums - own_sums).sigmoid_().unsqueeze(-1)
    return torch.lerp(own.to(weight.dtype), before.to(weight.dtype), weight).to(query.dtype)


def _attention(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention [H, n, D] and the logarithms of its rows' sums [H, n]."""
    output, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query[None], key[None], value[None], 0.0, causal, scale=scale
    )
    return output[0], sums[0]
