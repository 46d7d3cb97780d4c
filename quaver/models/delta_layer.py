"""A Gated DeltaNet layer of transformers, run over packed rows with its own weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from quaver.models import delta_cuda, gated_delta
from quaver.models.gated_delta import Layout

#: Tokens that are normalised and gated at a time; their numbers stay in the cache.
BLOCK = 32


@torch.no_grad()
def packed_forward(
    layer: Any, hidden: Tensor, layout: Layout, conv_initial: Tensor | None, recurrent_initial: Tensor | None
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """What ``Qwen3_5GatedDeltaNet`` and ``Qwen3_5MoeGatedDeltaNet`` compute, for packed rows.

    hidden [T, hidden]; the initial states are those of ``causal_conv`` and ``gated_delta_rule``.
    Returns the output [T, hidden] and both kinds of states at the cuts of each row.
    """
    kernels = delta_cuda if delta_cuda.suits(hidden) else gated_delta
    weight = layer.conv1d.weight.squeeze(1)
    mixed, conv_states = kernels.causal_conv(layer.in_proj_qkv(hidden), weight, layout, conv_initial)
    query, key, value = torch.split(mixed, [layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
    steps = layer.in_proj_a(hidden)
    precision = torch.promote_types(steps.dtype, torch.float32)
    output, states = kernels.gated_delta_rule(
        query.view(-1, layer.num_k_heads, layer.head_k_dim),
        key.view(-1, layer.num_k_heads, layer.head_k_dim),
        value.view(-1, layer.num_v_heads, layer.head_v_dim),
        -layer.A_log.to(precision).exp() * softplus(steps.to(precision) + layer.dt_bias),
        layer.in_proj_b(hidden).sigmoid(),
        layout,
        recurrent_initial,
    )
    _normalise(output, layer.in_proj_z(hidden).view_as(output), layer.norm)
    return layer.out_proj(output.flatten(1)), conv_states, states


def _normalise(output: Tensor, gate: Tensor, norm: Any) -> None:
    """``Qwen3_5RMSNormGated`` in place, without its roundings on the way: output and gate [T, Hv, Dv]."""
    precision = torch.promote_types(output.dtype, torch.float32)
    weight = norm.weight.to(precision)
    for rows, gates in zip(torch.split(output, BLOCK), torch.split(gate, BLOCK), strict=True):
        wide = rows.to(precision)
        length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = length.square_().div_(wide.shape[-1]).add_(norm.variance_epsilon).rsqrt_()
        rows.copy_(wide.mul_(scale).mul_(weight).mul_(silu(gates.to(precision))))
