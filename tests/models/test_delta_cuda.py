"""How calls of the CUDA kernels are cut and joined.

The kernels need a GPU. Stand-ins keep their documented contracts here, with the arithmetic of transformers.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import causal_conv1d_fn, torch_chunk_gated_delta_rule

from quaver.models import delta_cuda, gated_delta
from quaver.models.gated_delta import Layout

LAYOUTS = [
    Layout((5,), ((),)),
    Layout((40, 7), ((40,), (7,))),
    Layout((1, 90, 6, 70), ((1,), (3, 64, 80), (), (69, 70))),
]


def chunk_gated_delta_rule(
    *inputs: Tensor, initial_state: Tensor, cu_seqlens: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """``fla.ops.gated_delta_rule.chunk_gated_delta_rule``: sequences of one batch of one between ``cu_seqlens``."""
    pieces = [
        torch_chunk_gated_delta_rule(*(x[:, start:stop] for x in inputs), initial_state=state[None], **options)
        for (start, stop), state in zip(pairwise(cu_seqlens.tolist()), initial_state, strict=True)
    ]
    return torch.cat([output for output, _ in pieces], dim=1), torch.cat([state for _, state in pieces])


def conv_of_sequences(inputs: Tensor, weight: Tensor, seq_idx: Tensor, activation: str) -> Tensor:
    """``causal_conv1d.causal_conv1d_fn`` with ``seq_idx``, which wants channels last and takes no states."""
    assert inputs.stride(1) == 1 and seq_idx.dtype == torch.int32 and seq_idx.shape == (1, inputs.shape[2])
    _, counts = seq_idx[0].unique_consecutive(return_counts=True)
    pieces = inputs.split(counts.tolist(), dim=2)
    return torch.cat([causal_conv1d_fn(piece, weight, activation=activation) for piece in pieces], dim=2)


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    rule: Any = ModuleType("fla.ops.gated_delta_rule")
    rule.chunk_gated_delta_rule = chunk_gated_delta_rule
    convolution: Any = ModuleType("causal_conv1d")
    convolution.causal_conv1d_fn = conv_of_sequences
    for module in (ModuleType("fla"), ModuleType("fla.ops"), rule, convolution):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("resumed", [False, True])
def test_segments_join_to_what_plain_tensor_operations_give(layout: Layout, resumed: bool) -> None:
    torch.manual_seed(2)
    tokens, rows = sum(layout.lengths), len(layout.lengths)
    query, key = torch.randn(2, tokens, 2, 16)
    value, decay, beta = torch.randn(tokens, 4, 8), -torch.rand(tokens, 4), torch.rand(tokens, 4)
    channels, weight = torch.randn(tokens, 24), torch.randn(24, 4)
    state = torch.randn(rows, 4, 16, 8) if resumed else None
    window = torch.randn(rows, 24, 3) if resumed else None
    found = [
        *delta_cuda.gated_delta_rule(query, key, value, decay, beta, layout, state),
        *delta_cuda.causal_conv(channels, weight, layout, window),
    ]
    expected = [
        *gated_delta.gated_delta_rule(query, key, value, decay, beta, layout, state),
        *gated_delta.causal_conv(channels.clone(), weight, layout, window),
    ]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_kernels_of_others_are_for_cuda_only() -> None:
    assert not delta_cuda.suits(torch.zeros(1, dtype=torch.bfloat16))
