"""Rows in a KV cache that vLLM itself has planned, allocated and bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from vectors import OMNI
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.pooling_params import PoolingParams
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MambaSpec
from vllm.v1.pool.metadata import PoolingMetadata, PoolingStates
from vllm.v1.worker.utils import allocate_kv_cache, bind_kv_cache_to_layers

from quaver.vllm_plugin.memory_rows import MemoryRows, RowPool
from quaver.vllm_plugin.state_reuse import reuses_state

BLOCK, BLOCKS, HIDDEN = 32, 24, 200
ON = {"quaver": {"state_reuse": True}}


def configured(**options: object) -> VllmConfig:
    args = EngineArgs(str(OMNI), runner="pooling", max_model_len=512, block_size=BLOCK, enforce_eager=True, **options)  # type: ignore[arg-type]
    return args.create_engine_config()


@pytest.fixture(autouse=True)
def one_rank(tmp_path: Path) -> Iterator[None]:
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{tmp_path}/store", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        yield
    cleanup_dist_env_and_memory()


class Cache:
    """A model of two attention layers and the rows beside them, with vLLM's cache and blocks in a wild order."""

    def __init__(self, dtype: str, cache_dtype: str) -> None:
        self.config = config = configured(dtype=dtype, kv_cache_dtype=cache_dtype, enable_prefix_caching=True)
        config.cache_config.kv_cache_layout = "LBHNC"
        with set_current_vllm_config(config):
            for number in range(2):
                Attention(4, 32, 1.0, 2, cache_config=config.cache_config, prefix=f"layers.{number}.attn")
            self.rows = MemoryRows(config, HIDDEN)
        self.layers = config.compilation_config.static_forward_context
        specs = {name: layer.get_kv_cache_spec(config) for name, layer in self.layers.items()}
        (self.group,) = groups = get_kv_cache_groups(config, specs)
        assert isinstance(self.group.kv_cache_spec, FullAttentionSpec)
        bytes_of_block = sum(spec.page_size_bytes for spec in specs.values())
        plan = get_kv_cache_config_from_groups(config, groups, BLOCKS * bytes_of_block)
        layout = config.cache_config.get_resolved_kv_cache_layout()
        bind_kv_cache_to_layers(allocate_kv_cache(plan, torch.device("cpu"), layout, [BLOCK]), self.layers)
        self.free = (torch.randperm(BLOCKS - 1) + 1).tolist()

    def step(self, batch: list[tuple[list[int], int, torch.Tensor]]) -> list[torch.Tensor | None]:
        """Requests as their blocks, the tokens read before and the rows computed now; two padded tokens behind."""
        slots = [
            blocks[at // BLOCK] * BLOCK + at % BLOCK
            for blocks, before, rows in batch
            for at in range(before, before + len(rows))
        ]
        longest = max(len(blocks) for blocks, _, _ in batch)
        table = torch.tensor([blocks + [0] * (longest - len(blocks)) for blocks, _, _ in batch], dtype=torch.int32)
        computed = torch.cat([rows for _, _, rows in batch])
        ends = [before + len(rows) for _, before, rows in batch]
        starts = torch.tensor([0, *np.cumsum([len(rows) for _, _, rows in batch])], dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=torch.tensor(ends),
            num_reqs=len(batch),
            num_actual_tokens=len(computed),
            max_query_len=len(computed),
            max_seq_len=max(ends),
            block_table_tensor=table,
            slot_mapping=torch.tensor([*slots, -1, -1]),
        )
        metadata = {}
        for name, layer in self.layers.items():
            assert isinstance(layer, AttentionLayerBase)
            if not isinstance(layer, Attention):
                spec = layer.get_kv_cache_spec(self.config)
                assert spec is not None
                builder = layer.get_attn_backend().get_builder_cls()(spec, [name], self.config, torch.device("cpu"))
                metadata[name] = builder.build(0, common)
        with set_forward_context(metadata, self.config):
            self.rows.write(torch.cat([computed, torch.full((2, HIDDEN), torch.nan, dtype=computed.dtype)]))
        lengths = torch.tensor(ends)
        pooling = PoolingMetadata(
            lengths, None, None, [PoolingParams(task="token_classify")] * len(batch), [PoolingStates() for _ in batch]
        )
        pooling.build_pooling_cursor(np.array([len(rows) for _, _, rows in batch]), lengths, torch.device("cpu"))
        return RowPool(self.rows)(computed, pooling)

    def blocks(self, tokens: int) -> list[int]:
        return [self.free.pop() for _ in range(-(-tokens // BLOCK))]


@pytest.mark.parametrize(
    ("dtype", "cache_dtype"), [("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "fp8"), ("float32", "bfloat16")]
)
def test_rows_come_back_to_the_bit_whoever_computed_them(dtype: str, cache_dtype: str) -> None:
    torch.manual_seed(20261130)
    cache = Cache(dtype, cache_dtype)
    state, first, second = (torch.randn(n, HIDDEN).to(getattr(torch, dtype)) for n in (2 * BLOCK, 45, 7))
    shared, mine, other = cache.blocks(len(state)), cache.blocks(len(first)), cache.blocks(len(second))
    whole, unfinished = cache.step([(shared + mine, 0, torch.cat([state, first])), (other, 0, second[:3])])
    assert whole is not None and torch.equal(whole, torch.cat([state, first]))
    assert unfinished is not None and torch.equal(unfinished, second[:3])
    # The next request finds the state's two blocks; the other one goes on.
    hit, rest = cache.step([(shared + other, len(state), second), (mine, 0, first)])
    assert hit is not None and torch.equal(hit, torch.cat([state, second]))
    assert rest is not None and torch.equal(rest, first)


def test_a_profiling_pass_has_no_cache_yet() -> None:
    cache = Cache("float32", "auto")
    rows = torch.randn(5, HIDDEN)
    with set_forward_context(None, cache.config):
        cache.rows.write(rows)
    lengths = torch.tensor([2, 3])
    pooling = PoolingMetadata(
        lengths, None, None, [PoolingParams(task="token_classify")] * 2, [PoolingStates() for _ in range(2)]
    )
    pooling.build_pooling_cursor(lengths.numpy(), lengths, torch.device("cpu"))
    assert [len(part) for part in RowPool(cache.rows)(rows, pooling) if part is not None] == [2, 3]


@pytest.mark.parametrize(
    ("mamba", "attention", "rows", "share"), [(24, 8, 2, 0.25), (48, 16, 3, 0.1875), (0, 48, 2, 1 / 24)]
)
def test_what_rows_cost_beside_the_layers_of_the_three_releases(
    mamba: int, attention: int, rows: int, share: float
) -> None:
    """They share the block table of the attention layers, in the hybrids too, so nothing else is allocated."""
    config = VllmConfig()
    config.cache_config.kv_cache_layout = "LBHNC"
    layer = FullAttentionSpec(block_size=528, num_kv_heads=4, head_size=256, dtype=torch.bfloat16)
    delta = MambaSpec(
        block_size=528,
        shapes=((2**21,),),
        dtypes=(torch.uint8,),
        page_size_padded=layer.page_size_bytes,
        mamba_cache_mode="align",
    )
    specs: dict[str, KVCacheSpec] = {f"delta.{number}": delta for number in range(mamba)}
    specs |= {f"attention.{mamba + number}": layer for number in range(attention)}

    def bytes_of_block(specs: dict[str, KVCacheSpec]) -> int:
        groups = get_kv_cache_groups(config, specs)
        return max(len(group.layer_names) for group in groups) * layer.page_size_bytes

    without = bytes_of_block(specs)
    beside = bytes_of_block(specs | {f"memory_rows.{mamba + attention + number}": layer for number in range(rows)})
    assert beside / without - 1 == pytest.approx(share)


def test_state_reuse_is_off_unless_it_is_asked_for_and_refused_without_a_prefix_cache() -> None:
    assert not reuses_state(configured(enable_prefix_caching=True))
    assert reuses_state(configured(enable_prefix_caching=True, additional_config=ON))
    with pytest.raises(ValueError, match="state_reuse does not go with --no-enable-prefix-caching"):
        reuses_state(configured(enable_prefix_caching=False, additional_config=ON))
