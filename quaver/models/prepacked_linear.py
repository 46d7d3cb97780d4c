"""Linear layers whose weights lie in memory as oneDNN multiplies them.

A plain matrix product brings the weights into its own layout at every call. For a few hundred rows, which
is what a question about a known state has, that takes up to a third of the time. Done once, it takes no
more memory than before: the layer has its weights in the new layout only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from quaver.models.wide_linear import multiplies_bfloat16

#: Rows that the layout is chosen for. It serves all others as well.
ROWS = 256
#: Weights of fewer elements gain nothing.
LEAST = 1 << 18


class PrepackedLinear(nn.Linear):
    """A linear layer in oneDNN's layout: ``weight`` can only be multiplied with."""

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")
        return output


def prepack(model: nn.Module) -> None:
    """Makes every large ``nn.Linear`` of ``model`` on a CPU a ``PrepackedLinear`` where oneDNN has its precision.

    Layers change their class, as in ``widen``. Weights that anything else reads must not be among them.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    dtypes = {torch.float32} | ({torch.bfloat16} if multiplies_bfloat16() else set())
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.dtype in dtypes:
            if module.weight.numel() < LEAST:
                continue
            packed = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), ROWS)
            module.weight = nn.Parameter(packed, requires_grad=False)
            module.__class__ = PrepackedLinear
