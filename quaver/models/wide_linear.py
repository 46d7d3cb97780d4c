"""bfloat16 linear layers on a CPU without bfloat16 products: float32 arithmetic, bfloat16 memory.

Such CPUs multiply bfloat16 several times slower than float32. Weights stay as they were loaded, so that a
model takes half the memory; they are widened a block at a time, just before they are used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

#: Output features widened at a time: a block of float32 weights is used while it is still in the cache.
BLOCK = 256


class WideLinear(nn.Linear):
    """A linear layer that multiplies and adds in float32 and rounds once, to the precision of its weights."""

    def forward(self, input: Tensor) -> Tensor:
        wide = input.float()
        output = self.weight.new_empty(*input.shape[:-1], self.out_features)
        for first in range(0, self.out_features, BLOCK):
            rows = slice(first, first + BLOCK)
            bias = None if self.bias is None else self.bias[rows].float()
            output[..., rows] = linear(wide, self.weight[rows].float(), bias)
        return output


def widen(model: nn.Module) -> None:
    """Makes every bfloat16 ``nn.Linear`` of a loaded model a ``WideLinear`` where the CPU is better served by it.

    Layers change their class and nothing else, as with ``torch.nn.utils.parametrize``. Other precisions, other
    devices and subclasses of ``nn.Linear`` with arithmetic of their own are left alone.
    """
    if multiplies_bfloat16():
        return
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.bfloat16 and module.weight.device.type == "cpu":
            module.__class__ = WideLinear


def multiplies_bfloat16() -> bool:
    """Whether the CPU has vector instructions that torch's matrix products (oneDNN) use for bfloat16."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
