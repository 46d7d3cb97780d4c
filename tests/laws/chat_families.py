"""Tiny chat models with random weights, one of each family that is supported and some that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3_5ForConditionalGeneration

HIDDEN, VOCABULARY = 32, 200
#: As short as a sliding window can be while every text of a test is longer.
WINDOW = 8

PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
SHARED = {"shared_expert_intermediate_size": 16}
HYBRID = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 0],
        "mrope_interleaved": True,
    },
    "tie_word_embeddings": False,
}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
LOCAL = {"layer_types": SLIDING, "sliding_window": WINDOW, "query_pre_attn_scalar": 8}
#: Layers of a short convolution, of which only the last attends.
SHORT: dict[str, Any] = {
    "layer_types": ["conv", "full_attention", "conv"],
    "block_auto_adjust_ff_dim": False,
    "moe_intermediate_size": 16,
}
SMALL = {"hidden_size": 16, "intermediate_size": 16}
#: Of types that see, what their configuration has besides that of the text model.
EYES: dict[str, dict[str, Any]] = {
    "qwen3_5": {
        "vision_config": SMALL | {"depth": 1, "num_heads": 2, "out_hidden_size": HIDDEN},
        "tie_word_embeddings": False,
    },
    "gemma3": {
        "vision_config": SMALL
        | {
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 8,
            "patch_size": 2,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 4,
        "image_token_index": VOCABULARY - 1,
    },
}

#: Of each family, its type in transformers and what its configuration has besides ``PLAIN``.
SUPPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "mistral sliding": ("mistral", {"sliding_window": WINDOW}),
    "qwen2": ("qwen2", {}),
    "qwen2 sliding": ("qwen2", {"layer_types": SLIDING, "sliding_window": WINDOW, "use_sliding_window": True}),
    "qwen2 experts": ("qwen2_moe", EXPERTS | SHARED),
    "qwen3": ("qwen3", {}),
    "qwen3 experts": ("qwen3_moe", EXPERTS),
    "qwen3.5": ("qwen3_5_text", HYBRID),
    "qwen3.5 experts": ("qwen3_5_moe_text", HYBRID | EXPERTS | SHARED),
    "qwen3.5 with eyes": ("qwen3_5", HYBRID),
    "lfm2": ("lfm2", SHORT),
    "lfm2 experts": ("lfm2_moe", SHORT | {"num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2}),
    "gemma3": ("gemma3_text", LOCAL),
    "gemma3 with eyes": ("gemma3", LOCAL),
    "gemma3 capped": ("gemma3_text", LOCAL | {"final_logit_softcapping": 3.0}),
}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("gemma2", {}),
    "cohere": ("cohere", {}),
    "gpt_neo": ("gpt_neo", {"attention_types": [[["global"], 3]]}),
    "mamba": ("mamba", {}),
}
FAMILIES = tuple(SUPPORTED)


def tiny_chat(family: str, **changes: Any) -> Any:
    """A model of the family; sharper than an untrained one, so that what it says depends on what it reads."""
    torch.manual_seed(20261130)
    kind, extra = (SUPPORTED | REFUSED)[family]
    if kind in EYES:
        config = AutoConfig.for_model(kind, text_config=PLAIN | extra | changes, **EYES[kind])
    else:
        config = AutoConfig.for_model(kind, **PLAIN | extra | changes)
    if kind == "qwen3_5":  # of which transformers' own choice is the text model
        model: Any = Qwen3_5ForConditionalGeneration(config)
    else:
        model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(3.0)
    return model.eval()


def save(family: str, folder: Path, **changes: Any) -> None:
    """The model's configuration and weights as a release has them."""
    tiny_chat(family, **changes).save_pretrained(folder)
