"""Gated delta kernels and layer, and wide linear layers, beside what transformers and torch do, in turns.

The layer has the sizes of Qwen3.5-0.8B: hidden 1024, 16 heads of 128. transformers' side is what runs on a CPU,
its own fallback. Each figure is a ratio of medians, their time over ours, so above 1 is quicker here.

    .venv/bin/python benchmarks/delta.py [--rounds 7] [--threads 2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

from quaver.models.delta_layer import packed_forward
from quaver.models.gated_delta import Layout, causal_conv, gated_delta_rule
from quaver.models.placement import prepare_thread
from quaver.models.wide_linear import WideLinear

TOKENS = (64, 256, 1024, 2048)
SHAPES = ((1024, 3584), (1024, 1024))
HEADS, WIDTH, HIDDEN = 16, 128, 1024

Sides = tuple[Callable[[], object], Callable[[], object]]


def delta_cases(tokens: int) -> dict[str, Sides]:
    """Name to (theirs, ours), over one row of random numbers in float32."""
    config = Qwen3_5TextConfig(hidden_size=HIDDEN, num_hidden_layers=1, layer_types=["linear_attention"])
    layer = theirs.Qwen3_5GatedDeltaNet(config, 0).eval().requires_grad_(False)
    query, key, value = torch.randn(3, tokens, HEADS, WIDTH)
    decay, beta = -torch.rand(tokens, HEADS), torch.rand(tokens, HEADS)
    inputs, hidden = (query, key, value, decay, beta), torch.randn(tokens, HIDDEN)
    channels, weight = torch.randn(tokens, layer.conv_dim), layer.conv1d.weight.squeeze(1)
    layout = Layout((tokens,), ((tokens,),))
    return {
        "rule": (
            lambda: theirs.torch_chunk_gated_delta_rule(*(x[None] for x in inputs), use_qk_l2norm_in_kernel=True),
            lambda: gated_delta_rule(*inputs, layout, None),
        ),
        "convolution": (
            lambda: theirs.causal_conv1d_fn(channels.t()[None], weight, activation="silu"),
            lambda: causal_conv(channels, weight, layout, None),
        ),
        "layer": (lambda: layer(hidden[None]), lambda: packed_forward(layer, hidden, layout, None, None)),
    }


def linear_cases(tokens: int) -> dict[str, Sides]:
    """Name to (torch's bfloat16, ours), of one linear layer."""
    cases = {}
    for inputs, outputs in SHAPES:
        plain = nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        wide = WideLinear(inputs, outputs, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        wide.load_state_dict(plain.state_dict())
        rows = torch.randn(tokens, inputs, dtype=torch.bfloat16)
        cases[f"linear {inputs}x{outputs}"] = (lambda f=plain, x=rows: f(x), lambda f=wide, x=rows: f(x))
    return cases


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


@torch.inference_mode()
def compare(sides: Sides, rounds: int) -> tuple[float, float]:
    """Median seconds of both sides, after one round that does not count."""
    times = [[seconds(side) for side in sides] for _ in range(rounds + 1)][1:]
    first, second = (median(side) for side in zip(*times, strict=True))
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    prepare_thread()
    print(f"{'case':<18} {'tokens':>6} {'theirs ms':>10} {'ours ms':>9} {'ratio':>6}")
    for tokens in TOKENS:
        for name, sides in {**delta_cases(tokens), **linear_cases(tokens)}.items():
            first, second = compare(sides, options.rounds)
            print(f"{name:<18} {tokens:>6} {first * 1e3:>10.1f} {second * 1e3:>9.1f} {first / second:>6.2f}")


if __name__ == "__main__":
    main()
