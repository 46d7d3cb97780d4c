"""A tiny LFM2-VL model with random weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

IMAGE, VOCABULARY, FACTOR = 95, 200, 2


def tiny_lfm2_vl(vocabulary: int = VOCABULARY, image: int = IMAGE) -> Any:
    """Sharper than an untrained model, so that what it says depends on what it reads and sees."""
    torch.manual_seed(20261201)
    text = {
        "model_type": "lfm2",
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "block_auto_adjust_ff_dim": False,
        "max_position_embeddings": 4096,
    }
    vision = {
        "model_type": "siglip2_vision_model",
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "patch_size": 16,
        "num_patches": 16,
        "vision_use_head": False,
    }
    config: Any = Lfm2VlConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=image,
        projector_hidden_size=32,
        downsample_factor=FACTOR,
    )
    model: Any = Lfm2VlForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name and "vision" not in name:
                parameter.mul_(3.0)
    return model.eval()
