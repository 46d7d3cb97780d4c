"""Attention of new tokens that go on from a past, by the kernel that suits the device, the precision and the mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from quaver.models.wide_linear import multiplies_bfloat16

#: With fewer tokens to see, the kernel for plain attention is quicker.
LEAST_BY_PRODUCTS = 64
#: New tokens of which scores are computed at a time, and how many scores there may be at most: some 16 MB.
BLOCK, SCORES = 256, 1 << 23


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: tuple[Tensor, Tensor] | None,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """What new tokens make of a past and of themselves, [H, n, D].

    query [H, n, D]; key, value [Hk, n, D] of the new tokens and ``past`` those before them, [Hk, m, D], where
    H / Hk heads in a row share a key; ``mask`` [n, m + n] is added to scores. Without one attention is plainly
    causal, or over all tokens with ``causal`` off; after a past it must then be on the CPU.
    """
    total = key.shape[1] + (past[0].shape[1] if past else 0)
    narrow = query.dtype == torch.bfloat16 and key.device.type == "cpu" and multiplies_bfloat16()
    by_products = narrow and causal and total >= LEAST_BY_PRODUCTS
    if past and mask is None and not by_products:
        return _joined(query, key, value, past, scale)
    if past:
        key, value = (torch.cat(pair, dim=1) for pair in zip(past, (key, value), strict=True))
    if by_products:
        return _by_products(query, key, value, scale, mask)
    if mask is not None and key.is_cuda:
        # No fused CUDA kernel takes both a mask and fewer key heads than query heads.
        key, value = (x.repeat_interleave(len(query) // len(x), dim=0) for x in (key, value))
    plain = causal and mask is None
    return scaled_dot_product_attention(
        query[None], key[None], value[None], attn_mask=mask, is_causal=plain, scale=scale, enable_gqa=True
    )[0]


def _joined(query: Tensor, key: Tensor, value: Tensor, past: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """Plain causal attention after a past, [H, n, D], on a CPU.

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


def _by_products(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """Attention of the last n of t tokens, [H, n, D], by bfloat16 products, which torch's own kernel for it lacks.

    query [H, n, D]; key, value [Hk, t, D]; mask [n, t] or None as above. Scores come out of a product as bfloat16,
    which would move large ones too far. So they are computed twice, the second time less their row's maximum, which
    one more column of the factors brings in before anything is rounded: the scores that weigh most are then the
    smallest numbers, and exact.
    """
    heads, tokens, width = query.shape
    groups, total = key.shape[:2]
    query, key = pad(query, (0, 1)), pad(key, (0, 1), value=-1.0).mT
    output = query.new_empty(heads, tokens, width)
    block = max(32, min(BLOCK, SCORES // (heads * total)))
    for first in range(0, tokens, block):
        stop = min(first + block, tokens)
        size = stop - first
        if mask is None:
            seen, hidden = total - tokens + stop, query.new_full((size, size), -torch.inf).triu_(1)
        else:
            seen, hidden = total, mask[first:stop]
        keys = key[..., :seen]
        # Heads that share a key are rows of one product.
        asking = query[:, first:stop].reshape(groups, -1, width + 1)
        scores = torch.bmm(asking, keys)
        partly_hidden = scores.view(heads, size, seen)[..., -hidden.shape[1] :]
        partly_hidden.add_(hidden)
        asking[..., width] = scores.amax(-1)
        torch.bmm(asking, keys, out=scores)
        partly_hidden.add_(hidden)
        weights = scores.mul_(scale).softmax(-1)
        output[:, first:stop] = torch.bmm(weights, value[:, :seen]).view(heads, size, width)
    return output
