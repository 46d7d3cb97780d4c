"""Clef's output table under an NVFP4 backbone: vLLM's models, its ModelOpt allocation, its names and its loader.

vLLM has no NVFP4 kernel for CPUs, so its emulation, which runs everywhere, is entered as one.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    destroy_distributed_environment,
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.kernels import linear
from vllm.model_executor.layers import vocab_parallel_embedding
from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.utils import configure_quant_config
from vllm.model_executor.models.qwen3_5 import Qwen3_5ForConditionalGeneration
from vllm.model_executor.models.qwen3_omni_moe_thinker import Qwen3OmniMoeThinkerForConditionalGeneration
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

from quaver.vllm_plugin.models.clef import QuaverClefForJointSchema
from quaver.vllm_plugin.models.omni import QuaverClefOmniForJointSchema
from quaver.vllm_plugin.output_table import OutputTable, use_output_table

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    kernels = [linear.EmulationNvFp4LinearKernel]
    with pytest.MonkeyPatch.context() as patch, set_current_vllm_config(VllmConfig()):
        patch.setenv("VLLM_PLUGINS", "none")
        patch.setitem(linear._POSSIBLE_NVFP4_KERNELS, current_platform._enum, kernels)
        if model_parallel_is_initialized():
            yield
            return
        with tempfile.TemporaryDirectory() as folder:
            init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
            initialize_model_parallel(1, 1)
            yield
            destroy_model_parallel()
            destroy_distributed_environment()


def nvfp4(*excluded: str) -> ModelOptNvFp4Config:
    settings = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": list(excluded)}
    return ModelOptNvFp4Config.from_config(settings)


def table(vocabulary: int, width: int) -> Tensor:
    return torch.randn(vocabulary, width, generator=torch.Generator().manual_seed(0)).bfloat16()


class Release:
    """Builds model classes on a tiny release, with its backbone quantised."""

    def __init__(self, name: str) -> None:
        folder = GOLDEN / name
        self.config = EngineArgs(
            str(folder), dtype="bfloat16", max_model_len=512, enforce_eager=True
        ).create_engine_config()
        self.config.model_config.hf_config.joint_head_config = json.loads(
            (folder / "joint_head_config.json").read_text()
        )
        text = self.config.model_config.hf_text_config
        self.table = table(text.vocab_size, text.hidden_size)

    def build(self, model: Any, *excluded: str, tied: bool = False) -> Any:
        self.config.quant_config = nvfp4(*excluded)
        configure_quant_config(self.config.quant_config, model)
        self.config.compilation_config.static_forward_context.clear()
        self.config.model_config.hf_text_config.tie_word_embeddings = tied
        with set_current_vllm_config(self.config), set_default_torch_dtype(torch.bfloat16):
            return model(vllm_config=self.config, prefix="")


@pytest.fixture(scope="module")
def clef() -> Release:
    return Release("clef-flash-tiny")


@pytest.fixture(scope="module")
def omni() -> Release:
    return Release("clef-omni-tiny")


def all_rows(table: VocabParallelEmbedding) -> Tensor:
    return table(torch.arange(table.org_vocab_size))


def test_vllm_alone_allocates_half_the_width(clef: Release) -> None:
    """When this fails, vLLM has mended it, and ours may go."""
    model = clef.build(Qwen3_5ForConditionalGeneration)
    assert model.language_model.lm_head.weight.dtype == torch.uint8
    assert model.language_model.lm_head.weight.shape[1] == clef.table.shape[1] // 2
    with pytest.raises(RuntimeError, match="size"):
        model.load_weights([("lm_head.weight", clef.table)])


def test_vllm_alone_cannot_look_up_an_excluded_head(clef: Release) -> None:
    head = clef.build(Qwen3_5ForConditionalGeneration, "lm_head").language_model.lm_head
    with pytest.raises(NotImplementedError):
        VocabParallelEmbedding.forward(head, torch.tensor([1]))


@pytest.mark.parametrize("excluded", [(), ("lm_head",)], ids=["quantised", "excluded"])
def test_the_table_loads_in_full(clef: Release, excluded: tuple[str, ...]) -> None:
    model = clef.build(QuaverClefForJointSchema, *excluded)
    assert model.load_weights([("lm_head.weight", clef.table)]) == {"language_model.lm_head.weight"}
    assert torch.equal(all_rows(model.language_model.lm_head), clef.table)
    mlp = model.language_model.model.layers[0].mlp.down_proj
    assert mlp.weight.dtype == torch.uint8, "the backbone is still quantised"


def test_omni_loads_in_full(omni: Release) -> None:
    backbone = ("thinker.model*", "thinker.visual*", "thinker.audio_tower*")
    theirs = omni.build(Qwen3OmniMoeThinkerForConditionalGeneration, *backbone, "thinker.lm_head")
    assert theirs.language_model.lm_head.weight.dtype == torch.uint8, "vLLM gives this head no name to exclude it by"
    ours = omni.build(QuaverClefOmniForJointSchema, *backbone)
    assert ours.load_weights([("thinker.lm_head.weight", omni.table)]) == {"language_model.lm_head.weight"}
    assert torch.equal(all_rows(ours.language_model.lm_head), omni.table)


def test_a_tied_table_is_the_input_embedding(clef: Release) -> None:
    model = clef.build(QuaverClefForJointSchema, tied=True)
    language_model = model.language_model
    assert language_model.lm_head is language_model.model.embed_tokens
    model.load_weights([("model.language_model.embed_tokens.weight", clef.table), ("lm_head.weight", clef.table)])
    assert torch.equal(all_rows(language_model.lm_head), clef.table)


class Backbone(nn.Module):
    """The two tables of a causal language model, as vLLM builds them."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.config = type("Config", (), {"tie_word_embeddings": False})
        self.lm_head = ParallelLMHead(vocabulary, width, quant_config=nvfp4(), prefix="language_model.lm_head")


class Rank(nn.Module):
    """What one tensor-parallel rank holds of a model."""

    def __init__(self, vocabulary: int, width: int, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        with set_default_torch_dtype(dtype):
            self.language_model = Backbone(vocabulary, width)
            use_output_table(self.language_model)

    def load(self, **weights: Tensor) -> None:
        named = [(f"lm_head.{name}", weight) for name, weight in weights.items()]
        AutoWeightsLoader(self).load_weights(named, mapper=Qwen3_5ForConditionalGeneration.hf_to_vllm_mapper)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("vocabulary", "width"), [(1000, 64), (1024, 512), (130, 1024), (257, 2048)])
def test_ranks_share_padded_rows(monkeypatch: pytest.MonkeyPatch, ranks: int, vocabulary: int, width: int) -> None:
    full = table(vocabulary, width)
    monkeypatch.setattr(vocab_parallel_embedding, "get_tensor_model_parallel_world_size", lambda: ranks)
    monkeypatch.setattr(vocab_parallel_embedding, "tensor_model_parallel_all_reduce", lambda part: part)
    parts = []
    for rank in range(ranks):
        monkeypatch.setattr(vocab_parallel_embedding, "get_tensor_model_parallel_rank", lambda rank=rank: rank)
        model = Rank(vocabulary, width)
        model.load(weight=full)
        head = model.language_model.lm_head
        assert head.weight.shape == (-(-vocabulary // 64) * 64 // ranks, width)
        ids = torch.arange(vocabulary).flip(0).reshape(1, -1)
        with torch.compiler.set_stance("force_eager"):  # the mask of foreign ids is compiled, for minutes on a CPU
            parts.append(head(ids))
    assert torch.equal(torch.stack(parts).sum(0), full.flip(0)[None])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_models_dtype_is_kept(dtype: torch.dtype) -> None:
    model = Rank(130, 64, dtype)
    model.load(weight=table(130, 64))
    assert all_rows(model.language_model.lm_head).dtype == dtype
    torch.testing.assert_close(all_rows(model.language_model.lm_head), table(130, 64).to(dtype), rtol=0, atol=1e-6)


REFUSED = {
    "packed": ({"weight": torch.zeros(130, 32, dtype=torch.uint8)}, r"\[130, 64\].*\[130, 32\] of torch.uint8"),
    "bytes": ({"weight": torch.zeros(130, 64, dtype=torch.uint8)}, "of torch.uint8"),
    "float8": ({"weight": torch.zeros(130, 64).to(torch.float8_e4m3fn)}, "of torch.float8_e4m3fn"),
    "narrow": ({"weight": torch.zeros(130, 63)}, r"got \[130, 63\]"),
    "short": ({"weight": torch.zeros(129, 64)}, r"got \[129, 64\]"),
    "scaled": ({"input_scale": torch.ones(()), "weight": torch.zeros(130, 64)}, "lm_head.input_scale.*exclude lm_head"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_tables_are_refused(case: str) -> None:
    weights, message = REFUSED[case]
    model = Rank(130, 64)
    assert isinstance(model.language_model.lm_head, OutputTable)
    with pytest.raises(ValueError, match=message):
        model.load(**weights)
