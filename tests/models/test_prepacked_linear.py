"""Layers in oneDNN's layout give what plain ones give."""

import pytest
import torch
from torch import nn

from quaver.models.prepacked_linear import PrepackedLinear, prepack


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 200, 1500])
def test_a_prepacked_layer_multiplies_as_before(rows: int, bias: bool) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(600, 700, bias=bias), nn.Linear(700, 20))
    inputs = torch.randn(2, rows, 600)
    with torch.inference_mode():
        expected = model(inputs)
        prepack(model)
        assert [type(layer) for layer in model] == [PrepackedLinear, nn.Linear], "the small one is left alone"
        torch.testing.assert_close(model(inputs), expected, rtol=1e-5, atol=1e-5)


def test_other_layers_are_left_alone() -> None:
    class Own(nn.Linear):
        """Somebody's layer with arithmetic of its own."""

    model = nn.Sequential(Own(600, 700), nn.Linear(600, 700, dtype=torch.float64))
    prepack(model)
    assert [type(layer) for layer in model] == [Own, nn.Linear]
