"""The gated delta rule, its convolution and its layer, against a loop over tokens and against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import DynamicCache, Qwen3_5MoeTextConfig, Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeGatedDeltaNet

from quaver.models import gated_delta
from quaver.models.delta_layer import packed_forward
from quaver.models.gated_delta import Layout, causal_conv, gated_delta_rule

HEADS = [(4, 4), (2, 6), (1, 3)]
LENGTHS = (1, 63, 300, 64, 65, 129, 2, 3)

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def whole(*lengths: int) -> Layout:
    """Rows whose states are wanted at their ends."""
    return Layout(lengths, tuple((length,) for length in lengths))


def random_inputs(tokens: int, heads: int = 2, value_heads: int = 4, width: int = 32, value_width: int = 16) -> Inputs:
    torch.manual_seed(tokens)
    query, key = torch.randn(2, tokens, heads, width)
    value = torch.randn(tokens, value_heads, value_width)
    return query, key, value, -torch.rand(tokens, value_heads), torch.rand(tokens, value_heads)


def sequential(inputs: Inputs, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The recurrence of one row as it is defined, token by token in float64."""
    query, key, value, decay, beta = (tensor.double() for tensor in inputs)
    query, key = ((x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()) for x in (query, key))
    query, key = (x.repeat_interleave(value.shape[1] // x.shape[1], dim=1) for x in (query, key))
    state = key.new_zeros(*key.shape[1:], value.shape[2]) if state is None else state.double()
    outputs = []
    for q, k, v, g, b in zip(query, key, value, decay, beta, strict=True):
        state = state * g.exp()[:, None, None]
        error = (v - torch.einsum("hk,hkv->hv", k, state)) * b[:, None]
        state = state + k[:, :, None] * error[:, None, :]
        outputs.append(torch.einsum("hk,hkv->hv", q, state) * key.shape[2] ** -0.5)
    return torch.stack(outputs), state


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    # Below float32's normal range there is nothing to compare.
    assert (found.double() - expected.double()).abs().max() <= tolerance * expected.abs().max() + 1e-37


@pytest.mark.parametrize(("heads", "value_heads"), HEADS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_packed_rows_equal_the_recurrence(heads: int, value_heads: int, dtype: torch.dtype, tolerance: float) -> None:
    layout = whole(*LENGTHS)
    inputs = tuple(tensor.to(dtype) for tensor in random_inputs(sum(LENGTHS), heads, value_heads))
    initial = torch.randn(len(LENGTHS), value_heads, 32, 16, dtype=dtype)
    output, states = gated_delta_rule(*inputs, layout, initial)
    for row, (start, length) in enumerate(zip(layout.starts, LENGTHS, strict=True)):
        expected, state = sequential(tuple(x[start : start + length] for x in inputs), initial[row])
        assert_close(output[start : start + length], expected, tolerance)
        assert_close(states[row], state[None], tolerance)


def test_bfloat16_inputs_are_computed_nearly_as_exactly_as_they_are_stored() -> None:
    inputs = tuple(tensor.bfloat16() for tensor in random_inputs(100))
    output, states = gated_delta_rule(*inputs, whole(100), None)
    expected, state = sequential(inputs)
    assert output.dtype == torch.bfloat16 and states[0].dtype == torch.float32
    # One rounding is 2**-9.
    assert_close(output, expected, 2**-7)
    assert_close(states[0][0], state, 2**-7)


def test_bfloat16_is_computed_in_float32_where_the_cpu_has_no_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_delta, "multiplies_bfloat16", lambda: False)
    inputs = tuple(tensor.bfloat16() for tensor in random_inputs(100))
    output, states = gated_delta_rule(*inputs, whole(100), None)
    expected, state = sequential(inputs)
    assert_close(output, expected, 2**-8)
    assert_close(states[0][0], state)


@pytest.mark.parametrize("reference", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
@pytest.mark.parametrize(("heads", "value_heads"), HEADS)
def test_rows_equal_transformers(reference: str, heads: int, value_heads: int) -> None:
    inputs = random_inputs(130, heads, value_heads)
    initial = torch.randn(1, value_heads, 32, 16)
    output, states = gated_delta_rule(*inputs, whole(130), initial)
    expected, state = getattr(dense, reference)(
        *(tensor[None] for tensor in inputs),
        initial_state=initial,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    assert_close(output, expected[0])
    assert_close(states[0], state)


def hard(name: str) -> Inputs:
    query, key, value, decay, beta = random_inputs(200)
    if name == "one strong decay, then slight ones":
        decay = decay.mul(1e-3).index_fill(0, torch.tensor([3, 70, 128]), -1e4)
    elif name == "strong decay throughout":
        decay = decay * 1e4
    elif name == "no decay":
        decay = torch.zeros_like(decay)
    elif name == "the same key again and again":
        key, decay, beta = key[:1].expand_as(key), torch.zeros_like(decay), torch.ones_like(beta)
    elif name == "two keys in turn":
        key, decay, beta = key[:2].repeat(100, 1, 1), torch.zeros_like(decay), torch.ones_like(beta)
    elif name == "beta 0 and 1":
        beta = beta.round()
    elif name == "nothing is learned":
        beta = torch.zeros_like(beta)
    elif name == "zero vectors":
        query[5], key[7], value[9] = 0, 0, 0
        query[64:70], key[64:70] = 0, 0
    elif name == "tiny and huge vectors":
        query, key = query * 1e-6, key * 1e6
    return query, key, value, decay, beta


@pytest.mark.parametrize(
    "name",
    [
        "one strong decay, then slight ones",
        "strong decay throughout",
        "no decay",
        "the same key again and again",
        "two keys in turn",
        "beta 0 and 1",
        "nothing is learned",
        "zero vectors",
        "tiny and huge vectors",
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-4)])
def test_hard_inputs_equal_the_recurrence(name: str, dtype: torch.dtype, tolerance: float) -> None:
    inputs, initial = tuple(tensor.to(dtype) for tensor in hard(name)), torch.randn(1, 4, 32, 16)
    output, states = gated_delta_rule(*inputs, whole(200), initial)
    expected, state = sequential(inputs, initial[0])
    assert_close(output, expected, tolerance)
    assert_close(states[0][0], state, tolerance)


layouts = st.lists(
    st.integers(1, 140).flatmap(lambda length: st.tuples(st.just(length), st.sets(st.integers(1, length), max_size=4))),
    min_size=1,
    max_size=5,
).map(lambda rows: Layout(tuple(length for length, _ in rows), tuple(tuple(sorted(cuts)) for _, cuts in rows)))


@settings(max_examples=25, deadline=None)
@given(layouts)
def test_rows_alone_and_resumed_at_any_cut_equal_the_batch(layout: Layout) -> None:
    inputs = random_inputs(sum(layout.lengths))
    channels, weight = torch.randn(sum(layout.lengths), 6), torch.randn(6, 4)
    initial, before = torch.randn(len(layout.lengths), 4, 32, 16), torch.randn(len(layout.lengths), 6, 3)
    output, states = gated_delta_rule(*inputs, layout, initial)
    mixed, windows = causal_conv(channels.clone(), weight, layout, before)
    for row, (start, length, cuts) in enumerate(zip(layout.starts, layout.lengths, layout.cuts, strict=True)):
        assert len(states[row]) == len(windows[row]) == len(cuts)
        stop = start + length
        for cut, state, window in zip(
            (0, *cuts), (initial[row], *states[row]), (before[row], *windows[row]), strict=True
        ):
            if cut < length:
                rest = tuple(tensor[start + cut : stop] for tensor in inputs)
                resumed, ends = gated_delta_rule(*rest, whole(length - cut), state[None])
                assert_close(resumed, output[start + cut : stop])
                convolved, _ = causal_conv(
                    channels[start + cut : stop].clone(), weight, whole(length - cut), window[None]
                )
                assert_close(convolved, mixed[start + cut : stop])
                if length in cuts:
                    assert_close(ends[0][0], states[row][-1])


def test_a_row_that_is_not_finite_leaves_its_neighbours_alone() -> None:
    inputs, layout = random_inputs(150), whole(50, 60, 40)
    expected, _ = gated_delta_rule(*inputs, layout, None)
    inputs[2][70] = torch.nan
    inputs[1][80] = torch.inf
    output, states = gated_delta_rule(*inputs, layout, None)
    assert output[70:110].isnan().any() and states[1].isnan().any()
    assert_close(output[:50], expected[:50])
    assert_close(output[110:], expected[110:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_convolution_equals_transformers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layout = whole(*LENGTHS)
    inputs, weight = torch.randn(sum(LENGTHS), 24).to(dtype), torch.randn(24, 4).to(dtype)
    output, states = causal_conv(inputs.clone(), weight, layout, None)
    assert output.dtype == dtype
    for row, (start, length) in enumerate(zip(layout.starts, LENGTHS, strict=True)):
        tokens = inputs[start : start + length]
        expected = dense.causal_conv1d_fn(tokens.t()[None].float(), weight.float(), activation="silu")[0].t()
        assert_close(output[start : start + length], expected, 1e-6 if dtype == torch.float32 else 2**-8)
        padded = torch.cat([torch.zeros(3, 24, dtype=dtype), tokens])
        assert torch.equal(states[row][0], padded[-3:].t())


def layers(dtype: torch.dtype) -> list[Any]:
    """A small gated delta layer of each supported model, with random weights and gates."""
    torch.manual_seed(1)
    sizes = {
        "hidden_size": 48,
        "num_hidden_layers": 1,
        "layer_types": ["linear_attention"],
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    made = [
        dense.Qwen3_5GatedDeltaNet(Qwen3_5TextConfig(**sizes), 0),
        Qwen3_5MoeGatedDeltaNet(Qwen3_5MoeTextConfig(**sizes), 0),
    ]
    for layer in made:
        torch.nn.init.normal_(layer.norm.weight, 1.0)
        torch.nn.init.normal_(layer.dt_bias)
        layer.to(dtype).eval().requires_grad_(False)
    return made


@pytest.mark.parametrize("model", [0, 1], ids=["Qwen3.5", "Qwen3.5-MoE"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_the_layer_equals_transformers(model: int, dtype: torch.dtype, tolerance: float) -> None:
    layer = layers(dtype)[model]
    layout = Layout((70, 2, 131), ((20, 70), (1,), ()))
    hidden = torch.randn(203, 48).to(dtype)
    output, windows, states = packed_forward(layer, hidden, layout, None, None)
    assert output.dtype == dtype
    for row, (start, length, cuts) in enumerate(zip(layout.starts, layout.lengths, layout.cuts, strict=True)):
        tokens = hidden[None, start : start + length]
        assert_close(output[start : start + length], layer(tokens)[0], tolerance)
        for number, cut in enumerate(cuts):
            cache = DynamicCache(config=Qwen3_5TextConfig(num_hidden_layers=1, layer_types=["linear_attention"]))
            layer(tokens[:, :cut], cache=cache)
            assert_close(states[row][number], cache.get_recurrent_state(0)[0], tolerance)
            assert_close(windows[row][number], cache.get_conv_state(0)[0][:, -3:], tolerance)
    # Both rows with a cut inside go on from it to the same end.
    later = torch.cat([hidden[20:70], hidden[71:72]])
    before = [torch.stack([kept[0][0], kept[1][0]]) for kept in (windows, states)]
    resumed, _, _ = packed_forward(layer, later, whole(50, 1), *before)
    assert_close(resumed, torch.cat([output[20:70], output[71:72]]), tolerance)


@pytest.mark.parametrize(
    ("lengths", "cuts"),
    [((3,), ()), ((0,), ((),)), ((3,), ((4,),)), ((3,), ((0,),)), ((3,), ((2, 1),)), ((3,), ((2, 2),))],
)
def test_layouts_that_make_no_sense_are_refused(lengths: tuple[int, ...], cuts: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="cuts"):
        Layout(lengths, cuts)
