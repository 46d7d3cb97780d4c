"""A tiny Gemma 3 that sees, with random weights and both kinds of layers, and pictures for it."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from quaver.models.backbone import Media

VOCABULARY = 97
#: Ids of the vocabulary that mean something; texts keep below them.
BOI, EOI, IMAGE = 90, 91, 92
#: Pixels of a picture's side, and tokens of every picture.
SIDE, TOKENS = 32, 16
#: Shorter than a picture.
WINDOW = 9

TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": WINDOW,
    "max_position_embeddings": 8192,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 4,
    "vision_use_head": False,
}


def tiny_gemma3(**changes: Any) -> Any:
    """A model sharper than an untrained one, so that what it says depends on what it reads and sees."""
    torch.manual_seed(20261130)
    config = Gemma3Config(
        text_config=TEXT | changes,
        vision_config=VISION,
        mm_tokens_per_image=TOKENS,
        boi_token_index=BOI,
        eoi_token_index=EOI,
        image_token_index=IMAGE,
    )
    model: Any = Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("mm_input_projection_weight"):
                parameter.normal_(0, 0.5)
            elif parameter.dim() > 1:
                parameter.mul_(6.0)
    return model.eval()


def picture(seed: int) -> torch.Tensor:
    """One picture as the image processor gives it, [1, 3, SIDE, SIDE]."""
    return torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def media(seeds: list[int]) -> Media:
    """Pictures by seed, one after another."""
    each = (BOI, *(IMAGE,) * TOKENS, EOI)
    pixels = [picture(seed) for seed in seeds]
    digests = [hashlib.sha256(one.numpy().tobytes()).digest() for one in pixels]
    starts = range(0, len(seeds) * len(each), len(each))
    return Media(each * len(seeds), {"pixel_values": torch.cat(pixels)}, tuple(zip(starts, digests, strict=True)))
