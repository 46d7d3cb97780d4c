"""The gated delta rule and its convolution on CUDA, by flash-linear-attention and causal-conv1d.

Both packages read several rows in one call but give states only at their ends, so rows with cuts take
several calls: the first segment of every row, then the second, and so on.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import torch
from torch import Tensor

from quaver.models.gated_delta import Layout, conv_states


def suits(tensor: Tensor) -> bool:
    """Whether these functions can be used for it; flash-linear-attention has no float32."""
    return tensor.is_cuda and tensor.dtype == torch.bfloat16 and _installed()


@cache
def _installed() -> bool:
    return find_spec("fla") is not None and find_spec("causal_conv1d") is not None


@torch.no_grad()
def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, layout: Layout, initial: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """``gated_delta.gated_delta_rule`` with the same contract."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    heads, widths = value.shape[1], (key.shape[2], value.shape[2])
    state = query.new_zeros(len(layout.lengths), heads, *widths, dtype=torch.float32) if initial is None else initial
    state = state.float().clone()
    output = torch.empty_like(value)
    kept: list[list[Tensor]] = [[] for _ in layout.lengths]
    edges = [sorted({0, *cuts, length}) for cuts, length in zip(layout.cuts, layout.lengths, strict=True)]
    segments = [list(pairwise(edge)) for edge in edges]
    for turn in range(max(map(len, segments))):
        rows = [row for row, parts in enumerate(segments) if len(parts) > turn]
        spans = [torch.arange(*segments[row][turn]) + layout.starts[row] for row in rows]
        places = torch.cat(spans).to(query.device)
        ends = torch.tensor([0, *map(len, spans)]).cumsum(0).to(query.device)
        result, after = chunk_gated_delta_rule(
            *(tensor[places].unsqueeze(0) for tensor in (query, key, value, decay, beta)),
            initial_state=state[rows],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
            cu_seqlens=ends,
        )
        output[places] = result[0]
        state[rows] = after
        for row, end in zip(rows, after, strict=True):
            if segments[row][turn][1] in layout.cuts[row]:
                kept[row].append(end)
    return output, [torch.stack(ends) if ends else state.new_empty(0, heads, *widths) for ends in kept]


@torch.no_grad()
def causal_conv(inputs: Tensor, weight: Tensor, layout: Layout, initial: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """``gated_delta.causal_conv`` with the same contract."""
    from causal_conv1d import causal_conv1d_fn

    context = weight.shape[1] - 1
    before = inputs.new_zeros(len(layout.lengths), inputs.shape[1], context) if initial is None else initial.to(inputs)
    # Several rows with states are more than one call takes, so their states are read as tokens in front of them.
    rows = zip(before.transpose(1, 2), torch.split(inputs, list(layout.lengths)), strict=True)
    padded = torch.cat([part for row in rows for part in row])
    lengths = torch.tensor(layout.lengths, device=inputs.device)
    number = torch.arange(len(lengths), device=inputs.device, dtype=torch.int32)
    result = causal_conv1d_fn(
        padded.t().unsqueeze(0),
        weight,
        seq_idx=number.repeat_interleave(lengths + context).unsqueeze(0),
        activation="silu",
    )
    shift = (number + 1).repeat_interleave(lengths) * context
    output = result[0].t()[torch.arange(len(inputs), device=inputs.device) + shift]
    return output, conv_states(inputs, context, layout, initial)
