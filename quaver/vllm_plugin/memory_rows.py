"""The hidden rows of a prompt's tokens, kept in vLLM's own KV cache so that a cached prefix need not be read again.

vLLM keeps keys and values of a prefix, but a pooler gets hidden rows only of the tokens that were computed for its
request. Here the last layer's rows are one more thing that a KV block holds: a few cache-only layers, with the same
spec as the model's attention layers, are registered beside them. vLLM then counts their memory, hashes, shares and
evicts them with the blocks they belong to, and whatever a request reads from the prefix cache has its rows too.

A whole row is kept, not only its projection into the head's memory: a hit may reach into the questions, whose rows
the head needs in full, and vLLM has no way to end a hit earlier. See docs/vllm-state-reuse.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from vllm.config import VllmConfig
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.pooler.tokwise.methods import TokenPoolingMethod
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImplBase,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec
from vllm.v1.pool.metadata import PoolingMetadata
from vllm.v1.worker.utils import customize_attention_spec


class MemoryRows:
    """Rows [tokens, hidden] by KV slot. Only the last pipeline stage has them; each tensor-parallel rank keeps a slice.

    ``write`` belongs at the end of the model's forward, ``read`` in the pooler that runs after it.
    """

    def __init__(self, config: VllmConfig, hidden_size: int) -> None:
        sibling = next(
            (
                layer
                for layer in config.compilation_config.static_forward_context.values()
                if isinstance(layer, Attention) and isinstance(layer.get_kv_cache_spec(config), FullAttentionSpec)
            ),
            None,
        )
        if sibling is None:
            raise ValueError("rows are kept beside the keys of an attention layer; this pipeline stage has none")
        ranks = get_tensor_model_parallel_world_size()
        if hidden_size % ranks:
            raise ValueError(f"a row of {hidden_size} numbers cannot be kept by {ranks} tensor-parallel ranks")
        self._width = hidden_size // ranks
        self._dtype = config.model_config.dtype
        self._batch: _Batch | None = None
        spec = _spec(sibling, config)
        # Bytes of one token in one layer's cache; a row takes as many layers as it needs.
        room = spec.num_heads * spec.state_content_size_bytes
        layers = -(-self._width * self._dtype.itemsize // room)
        # A layer's name holds one number, and no other layer has it.
        first = config.model_config.get_total_num_hidden_layers()
        self._layers = [_RowLayer(f"memory_rows.{first + i}", sibling, config) for i in range(layers)]

    def write(self, hidden: Tensor) -> None:
        """Keep the rows [tokens, hidden] that the forward under way has computed."""
        metadata = get_forward_context().attn_metadata
        # A profiling pass has no KV cache yet.
        self._batch = metadata[self._layers[0].name] if isinstance(metadata, dict) and metadata else None
        if self._batch is None:
            return
        caches = [layer.kv_cache for layer in self._layers]
        _, heads, block, content = caches[0].shape
        # Slots of padding are -1. Block 0 belongs to no request.
        slots = self._batch.slots[: len(hidden)].clamp_min(0)
        begin = get_tensor_model_parallel_rank() * self._width
        rows = hidden[: len(slots), begin : begin + self._width].to(self._dtype).contiguous().view(caches[0].dtype)
        rows = functional.pad(rows, (0, len(caches) * heads * content - rows.shape[1]))
        for cache, part in zip(caches, rows.view(len(slots), len(caches), heads, content).unbind(1), strict=True):
            cache[slots // block, :, slots % block] = part

    def read(self, index: int, length: int) -> Tensor:
        """The first ``length`` rows [length, hidden] of the batch's request ``index``, cached ones included."""
        assert self._batch is not None
        caches = [layer.kv_cache for layer in self._layers]
        block = caches[0].shape[2]
        blocks = self._batch.blocks[index, : -(-length // block)].long()
        parts = [cache[blocks].transpose(1, 2).flatten(2).flatten(0, 1)[:length] for cache in caches]
        rows = torch.cat(parts, dim=-1)
        rows = rows[:, : self._width * self._dtype.itemsize // rows.dtype.itemsize].contiguous().view(self._dtype)
        return tensor_model_parallel_all_gather(rows) if get_tensor_model_parallel_world_size() > 1 else rows

    @property
    def holds_batch(self) -> bool:
        """Whether the last forward wrote rows."""
        return self._batch is not None


class RowPool(TokenPoolingMethod):
    """All rows of every prompt that ends in this step, read or computed: vLLM's ``AllPool`` with a prefix cache."""

    def __init__(self, rows: MemoryRows) -> None:
        super().__init__()
        self._rows = rows

    def forward(self, hidden_states: Tensor, pooling_metadata: PoolingMetadata) -> list[Tensor | None]:
        cursor = pooling_metadata.get_pooling_cursor()
        if not self._rows.holds_batch:
            return list(torch.split(hidden_states, cursor.num_scheduled_tokens_cpu.tolist()))
        ends = zip(pooling_metadata.prompt_lens.tolist(), cursor.get_finished_mask(), strict=True)
        return [self._rows.read(index, length) if done else None for index, (length, done) in enumerate(ends)]


class _RowLayer(AttentionLayerBase):
    """A place in the KV cache that looks to vLLM like one more attention layer. It computes nothing."""

    def __init__(self, name: str, sibling: Attention, config: VllmConfig) -> None:
        self.name = name
        self.kv_cache = torch.tensor([])  # [blocks, heads, tokens of a block, numbers of a head], bound by vLLM
        self._sibling = sibling
        config.compilation_config.static_forward_context[name] = self

    def get_attn_backend(self) -> type[AttentionBackend]:
        return _RowBackend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        return _spec(self._sibling, vllm_config)


@dataclass(frozen=True, slots=True)
class _Batch(AttentionMetadata):
    """Where a step's tokens lie: ``slots`` [tokens], ``blocks`` [requests, blocks of the longest]."""

    slots: Tensor
    blocks: Tensor


class _RowMetadataBuilder(AttentionMetadataBuilder[_Batch]):
    """No CUDA graph of the whole model is made beside this one, so ``MemoryRows.write`` runs in every step."""

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,  # noqa: ARG002
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,  # noqa: ARG002
    ) -> _Batch:
        return _Batch(slots=common_attn_metadata.slot_mapping, blocks=common_attn_metadata.block_table_tensor)


class _RowBackend(AttentionBackend):
    @staticmethod
    def get_name() -> str:
        return "QUAVER_ROWS"

    @staticmethod
    def get_impl_cls() -> type[AttentionImplBase]:
        raise NotImplementedError("rows are kept, nothing is attended to")

    @staticmethod
    def get_builder_cls() -> type[_RowMetadataBuilder]:
        return _RowMetadataBuilder


def _spec(sibling: Attention, config: VllmConfig) -> FullAttentionSpec:
    """The spec under which vLLM allocates the keys and values of ``sibling``: equal specs share a block table."""
    spec = sibling.get_kv_cache_spec(config)
    assert isinstance(spec, FullAttentionSpec)
    spec = customize_attention_spec(sibling.get_attn_backend(), spec)
    assert isinstance(spec, FullAttentionSpec)
    return spec
