"""Our softcap inside vLLM's Triton kernels, and vLLM's own beside it, interpreted on the CPU.

vLLM's build for CPUs hides Triton from its kernel files, so they are loaded again here with Triton in sight.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm import triton_utils

from quaver.vllm_plugin import softcap

triton = pytest.importorskip("triton")
tl = triton.language

CAPS = [1.0, 20.0, 30.0, 50.0]
SPECIAL = [0.0, 1.0, 4239.0, 4241.0, 4400.0, 4437.0, 1e30, float("inf")]
OPS = "vllm.v1.attention.ops"
NAMES = ["triton_attention_helpers", "triton_unified_attention", "triton_unified_attention_diffkv"]

apply: Any = None


def elementwise(scores, out, cap, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    tl.store(out + at, apply(tl.load(scores + at), cap))


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """vLLM's kernel files, all of them interpreted."""
    package = importlib.import_module(OPS)
    for module in [*(f"{OPS}.{name}" for name in NAMES), "quaver.heads.softcap_triton"]:
        monkeypatch.delitem(sys.modules, module, raising=False)
    for name in NAMES:
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for library in (tl, tl.standard):  # Triton's own functions were defined before the line above
        for name, function in list(vars(library).items()):
            if isinstance(function, triton.JITFunction):
                monkeypatch.setattr(library, name, triton.jit(function.fn))
    monkeypatch.setattr(triton_utils, "HAS_TRITON", True)
    monkeypatch.setattr(triton_utils, "triton", triton)
    monkeypatch.setattr(triton_utils, "tl", tl)
    yield SimpleNamespace(**{name: importlib.import_module(f"{OPS}.{name}") for name in NAMES})
    for name in NAMES:
        sys.modules.pop(f"{OPS}.{name}")
        delattr(package, name)
    sys.modules.pop("quaver.heads.softcap_triton", None)


@pytest.fixture
def capped(ops: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Tensor, float], Tensor]:
    """Runs whatever helper vLLM's attention kernel has at the time of the call."""
    kernel = triton.jit(elementwise)

    def run(scores: Tensor, cap: float) -> Tensor:
        monkeypatch.setattr(sys.modules[__name__], "apply", ops.triton_unified_attention.apply_softcap)
        padded = torch.zeros(triton.next_power_of_2(len(scores)))
        padded[: len(scores)] = scores
        out = torch.empty_like(padded)
        kernel[(1,)](padded, out, cap, len(padded))
        return out[: len(scores)]

    return run


def exact(scores: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(scores.double() / cap)


def grid(cap: float) -> Tensor:
    """Scores from tiny to far beyond where exp overflows, ascending."""
    return torch.cat([torch.logspace(-30, 0, 10_000), torch.linspace(1.0001, 100, 10_000)]) * cap


def test_vllm_alone_is_farther(capped: Any) -> None:
    """Its form is finite everywhere, so ours is an option and no repair."""
    scores = torch.logspace(-6, -2, 20_000) * 50
    theirs = capped(scores, 50.0)
    softcap.install()
    ours = capped(scores, 50.0)
    errors = [(got.double() - exact(scores, 50.0)).abs().max() for got in (theirs, ours)]
    assert errors[0] > 2 * errors[1]


def test_vllm_alone_is_not_odd(capped: Any) -> None:
    scores = torch.logspace(-4, 1, 20_000) * 50
    assert not torch.equal(capped(-scores, 50.0), -capped(scores, 50.0))


@pytest.mark.parametrize("cap", CAPS)
def test_near_float64_bounded_odd_and_ordered(capped: Any, cap: float) -> None:
    softcap.install()
    scores = grid(cap)
    got = capped(scores, cap)
    assert (got.double() - exact(scores, cap)).abs().max() <= 1.6e-7 * cap
    assert got.abs().max() <= cap
    assert torch.equal(capped(-scores, cap), -got)
    assert (got.diff() >= 0).all()


@pytest.mark.parametrize("cap", CAPS)
def test_special_values(capped: Any, cap: float) -> None:
    softcap.install()
    got = capped(torch.tensor([*SPECIAL, *(-value for value in SPECIAL), float("nan")]), cap)
    assert got[:-1].isfinite().all() and got[-1].isnan()
    assert got[[7, 15]].tolist() == [cap, -cap]


@pytest.mark.parametrize("ours", [False, True])
def test_a_score_of_4241_in_an_attention_row(ops: Any, ours: bool) -> None:
    """The whole kernel, at the score where quotients of exponentials give inf and then a row of NaN."""
    if ours:
        softcap.install()
    scores = torch.tensor([4241.0, 40.0, -3.0, 0.5, 49.0, -4241.0])
    length, width, cap = len(scores), 16, 50.0
    query = torch.zeros(1, 1, width)
    query[..., 0] = 1
    keys, values = torch.zeros(1, 16, 1, width), torch.zeros(1, 16, 1, width)
    keys[0, :length, 0, 0] = scores
    values[0, :length, 0] = torch.randn(length, width, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(query)
    ops.triton_unified_attention.unified_attention(
        q=query,
        k=keys,
        v=values,
        out=out,
        cu_seqlens_q=torch.tensor([0, 1], dtype=torch.int32),
        max_seqlen_q=1,
        seqused_k=torch.tensor([length], dtype=torch.int32),
        max_seqlen_k=length,
        softmax_scale=1.0,
        causal=True,
        window_size=(-1, -1),
        block_table=torch.zeros(1, 1, dtype=torch.int32),
        softcap=cap,
        q_descale=None,
        k_descale=None,
        v_descale=None,
    )
    weights = torch.softmax(exact(scores, cap), -1)
    torch.testing.assert_close(out[0, 0].double(), weights @ values[0, :length, 0].double(), rtol=0, atol=1e-5)


def test_every_kernel_file_gets_it_and_twice_is_once(ops: Any) -> None:
    softcap.install()
    softcap.install()
    ours = sys.modules["quaver.heads.softcap_triton"]
    assert {getattr(ops, name).apply_softcap for name in NAMES} == {ours.apply_softcap}  # type: ignore[attr-defined]


def test_it_is_an_option_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(softcap.OPTION, raising=False)
    assert not softcap.wanted()
    monkeypatch.setenv(softcap.OPTION, "1")
    assert softcap.wanted()
    monkeypatch.setenv(softcap.OPTION, "yes")
    with pytest.raises(ValueError, match="must be 0 or 1, got 'yes'"):
        softcap.wanted()


@pytest.mark.skipif(triton_utils.HAS_TRITON, reason="vLLM uses Triton here")
def test_without_vllms_triton_kernels_it_is_refused() -> None:
    with pytest.raises(RuntimeError, match="uses none here; leave it out"):
        softcap.install()
