"""bfloat16 weights multiplied in float32 round as float64 products do, whatever the CPU can do itself."""

import pytest
import torch
from torch import nn

from quaver.models import wide_linear
from quaver.models.wide_linear import WideLinear, widen


@pytest.fixture(params=[False, True], ids=["plain CPU", "bfloat16 CPU"])
def capable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(wide_linear, "multiplies_bfloat16", lambda: request.param)
    return bool(request.param)


def test_only_bfloat16_layers_of_a_plain_cpu_change(capable: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4), nn.LayerNorm(4))
    before = model.state_dict()
    widen(model)
    assert [type(module) for module in model] == [nn.Linear if capable else WideLinear, nn.Linear, nn.LayerNorm]
    after = model.state_dict()
    assert {name: tensor.data_ptr() for name, tensor in before.items()} == {
        name: tensor.data_ptr() for name, tensor in after.items()
    }


@pytest.mark.parametrize(("inputs", "outputs"), [(32, 1), (32, 255), (64, 256), (96, 257), (1024, 700)])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 5), ()])
@pytest.mark.parametrize("bias", [False, True])
def test_outputs_are_float64_products_rounded(
    inputs: int, outputs: int, shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_linear, "multiplies_bfloat16", lambda: False)
    torch.manual_seed(inputs + outputs)
    layer = nn.Linear(inputs, outputs, bias=bias, dtype=torch.bfloat16)
    rows = torch.randn(*shape, inputs, dtype=torch.bfloat16)
    exact = nn.functional.linear(
        rows.double(), layer.weight.double(), layer.bias.double() if layer.bias is not None else None
    )
    widen(layer)
    found = layer(rows)
    assert found.dtype == torch.bfloat16 and found.shape == exact.shape
    # One rounding to 8 bits is at most half a step away; float32 sums may turn a tie.
    assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-6)
