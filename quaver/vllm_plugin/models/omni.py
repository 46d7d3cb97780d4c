"""Clef-omni: the thinker of Qwen3-Omni with a joint schema head."""

from __future__ import annotations

from vllm.model_executor.models.interfaces_base import default_pooling_type
from vllm.model_executor.models.qwen3_omni_moe_thinker import (
    Qwen3OmniMoeThinkerDummyInputsBuilder,
    Qwen3OmniMoeThinkerForConditionalGeneration,
    Qwen3OmniMoeThinkerMultiModalProcessor,
    Qwen3OmniMoeThinkerProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

from quaver.vllm_plugin.models.joint import JointSchemaModel


@default_pooling_type(tok_pooling_type="ALL")
@MULTIMODAL_REGISTRY.register_processor(
    Qwen3OmniMoeThinkerMultiModalProcessor,
    info=Qwen3OmniMoeThinkerProcessingInfo,
    dummy_inputs=Qwen3OmniMoeThinkerDummyInputsBuilder,
)
class QuaverClefOmniForJointSchema(JointSchemaModel, Qwen3OmniMoeThinkerForConditionalGeneration):
    pass
