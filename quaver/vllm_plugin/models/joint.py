"""What Clef's model classes have in common: a backbone of vLLM's with our head behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.pooler.tokwise.methods import AllPool
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from quaver.heads.checkpoint import WEIGHTS
from quaver.heads.joint_schema import JointSchemaHead
from quaver.vllm_plugin.memory_rows import MemoryRows, RowPool
from quaver.vllm_plugin.output_table import use_output_table
from quaver.vllm_plugin.pooler import JointPooler
from quaver.vllm_plugin.state_reuse import reuses_state


class JointSchemaModel(nn.Module):
    """A base to stand before the backbone's class. The head is float32 whatever the backbone is, and whole on every
    tensor-parallel rank; of the pipeline's stages only the last one has it."""

    is_pooling_model = True

    language_model: Any
    _memory: MemoryRows | None = None

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        model_config = vllm_config.model_config
        config = model_config.hf_config.joint_head_config
        with torch.device("meta"):
            self._head_names = frozenset(JointSchemaHead(**config).state_dict())
        if not get_pp_group().is_last_rank:
            self.pooler = JointPooler()
            return
        use_output_table(self.language_model)
        if reuses_state(vllm_config):
            self._memory = MemoryRows(vllm_config, config["hidden_size"])
        self.pooler = JointPooler(
            head=JointSchemaHead(**config).float().eval(),
            rows=AllPool() if self._memory is None else RowPool(self._memory),
            lexical=lambda ids: self.language_model.lm_head(ids),  # the module itself would become a part of the pooler
        )
        self.secondary_weights = [
            DefaultModelLoader.Source(
                model_or_path=model_config.model,
                revision=model_config.revision,
                prefix="pooler.head.",
                allow_patterns_overrides=[WEIGHTS],
            )
        ]

    def is_unused_checkpoint_weight(self, name: str) -> bool:
        """Asked about the backbone's tensors: without an index vLLM takes the head's file for one of them too."""
        return name in self._head_names

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = super().forward(*args, **kwargs)
        if self._memory is not None and isinstance(hidden, Tensor):
            self._memory.write(hidden)
        return hidden
