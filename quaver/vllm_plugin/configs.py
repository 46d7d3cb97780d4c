"""How vLLM comes to know Clef releases: their architectures, their settings, and how a folder is recognised.

A release's ``config.json`` names its backbone only; the files of its head say what it is. vLLM asks a converter,
chosen by the model's type, for every configuration that it reads, in the process that parses the arguments.
Ours looks for the head and changes the architecture, as vLLM's own does for the Clef models that it knows.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.models.config import MODELS_CONFIG_MAP
from vllm.model_executor.models.registry import ModelRegistry
from vllm.transformers_utils import model_arch_config_convertor as convertors
from vllm.transformers_utils.config import file_or_path_exists, get_hf_file_to_dict

CLEF = "QuaverClefForJointSchema"
OMNI = "QuaverClefOmniForJointSchema"
#: Ours, by the model type of the backbone.
ARCHITECTURES = {"qwen3_5": CLEF, "qwen3_omni_moe": OMNI}
#: What a release's own config names.
BACKBONES = {CLEF: "Qwen3_5ForConditionalGeneration", OMNI: "Qwen3OmniMoeForConditionalGeneration"}
#: Where the classes are. Strings, so that no process imports a model that it does not run.
CLASSES = {
    CLEF: "quaver.vllm_plugin.models.clef:QuaverClefForJointSchema",
    OMNI: "quaver.vllm_plugin.models.omni:QuaverClefOmniForJointSchema",
}

HEAD_CONFIG = "joint_head_config.json"


def register() -> None:
    """Enters everything in vLLM's tables. Again changes nothing."""
    known = ModelRegistry.get_supported_archs()
    for architecture, path in CLASSES.items():
        if architecture not in known:
            ModelRegistry.register_model(architecture, path)
        # vLLM looks its settings up by name, so an architecture of ours would lose those of its backbone.
        if settings := MODELS_CONFIG_MAP.get(BACKBONES[architecture]):
            MODELS_CONFIG_MAP[architecture] = settings
    table = convertors.MODEL_ARCH_CONFIG_CONVERTORS
    for model_type, architecture in ARCHITECTURES.items():
        theirs = table.get(model_type, convertors.ModelArchConfigConvertorBase)
        if not hasattr(theirs, "quaver_architecture"):
            table[model_type] = _recognising(theirs, architecture)


def recognise(config: Any, architecture: str, revision: str | None) -> None:
    """Makes a release's ``config`` name our ``architecture`` and hold its ``joint_head_config``."""
    named = getattr(config, "architectures", None)
    if named not in ([BACKBONES[architecture]], [architecture]) or hasattr(config, "joint_head_config"):
        return
    path = config.name_or_path
    if path and file_or_path_exists(path, HEAD_CONFIG, revision):
        config.architectures = [architecture]
        config.joint_head_config = get_hf_file_to_dict(HEAD_CONFIG, path, revision)


def _recognising(theirs: type, architecture: str) -> type:
    class Convertor(theirs):
        quaver_architecture = architecture

        def __init__(self, hf_config: Any, hf_text_config: Any, revision: str | None = None) -> None:
            recognise(hf_config, architecture, revision)
            super().__init__(hf_config, hf_text_config, revision)

    return Convertor
