"""A short convolution layer of LFM2, run over packed rows with its own weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quaver.models.gated_delta import Layout, conv_states


@torch.no_grad()
def packed_forward(
    layer: Any, hidden: Tensor, layout: Layout, initial: Tensor | None, _: Tensor | None
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """What ``Lfm2ShortConv`` computes, for packed rows: a gate, a depthwise convolution of K taps, a gate.

    hidden [T, hidden]; initial [rows, hidden, K - 1], what was convolved before the rows, or None for zeros.
    Returns the output [T, hidden] and, per row, the state at its cuts [cuts, hidden, K - 1] beside an empty
    one [cuts, 0]: such a layer has no matrix.
    """
    gate, output_gate, value = layer.in_proj(hidden).chunk(3, dim=-1)
    inputs = gate * value
    taps = layer.conv.weight.squeeze(1).t()
    context = len(taps) - 1
    states = conv_states(inputs, context, layout, initial)
    mixed = torch.empty_like(inputs)
    for row, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
        before = inputs.new_zeros(context, inputs.shape[1]) if initial is None else initial[row].t().to(inputs)
        window = torch.cat([before, inputs[start : start + length]])
        # In float32 or wider, as a convolution kernel adds up.
        wide = window.to(torch.promote_types(window.dtype, torch.float32))
        mixed[start : start + length] = sum(wide[k : k + length] * tap for k, tap in enumerate(taps))
    if layer.conv.bias is not None:
        mixed += layer.conv.bias
    return layer.out_proj(output_gate * mixed), states, [hidden.new_empty(len(cuts), 0) for cuts in layout.cuts]
