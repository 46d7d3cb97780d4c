"""Clef and Clef-flash: Qwen3.5 with a joint schema head."""

from __future__ import annotations

from vllm.model_executor.models.interfaces_base import default_pooling_type
from vllm.model_executor.models.qwen3_5 import Qwen3_5ForConditionalGeneration, Qwen3_5ProcessingInfo
from vllm.model_executor.models.qwen3_vl import Qwen3VLDummyInputsBuilder, Qwen3VLMultiModalProcessor
from vllm.multimodal import MULTIMODAL_REGISTRY

from quaver.vllm_plugin.models.joint import JointSchemaModel


@default_pooling_type(tok_pooling_type="ALL")
@MULTIMODAL_REGISTRY.register_processor(
    Qwen3VLMultiModalProcessor, info=Qwen3_5ProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class QuaverClefForJointSchema(JointSchemaModel, Qwen3_5ForConditionalGeneration):
    #: Our processor has scaled the pixels, as the release's own does; vLLM would scale them once more.
    supports_mm_device_do_normalize = False
