"""Tiny Gemma 4 models with random weights, of every shape that is released, and pictures for them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from transformers import (
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
)

from quaver.models.backbone import Media

HIDDEN, VOCABULARY = 32, 97
#: Ids of the vocabulary that mean something; texts keep below them.
BOI, EOI, IMAGE, VIDEO, AUDIO = 90, 91, 92, 93, 94
#: A picture of 12 tokens is shorter than the window and one of 24 is longer.
WINDOW = 16
#: Rows and columns of tokens.
SHORT, LONG = (3, 4), (4, 6)

TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "sliding_window": WINDOW,
    "use_bidirectional_attention": "vision",
    "final_logit_softcapping": 30.0,
    "max_position_embeddings": 8192,
}
TOWER = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCABULARY}
SHARED = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}
SMALL = {
    "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": VOCABULARY,
    "attention_k_eq_v": False,
    "use_bidirectional_attention": None,
    **SHARED,
}
EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "patch_size": 4,
    "pooling_kernel_size": 2,
    "position_embedding_size": 64,
}
UNIFIED_VISION = {
    "patch_size": 4,
    "pooling_kernel_size": 2,
    "mm_embed_dim": 24,
    "mm_posemb_size": 32,
    "output_proj_dims": 24,
}
AUDIO_TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "output_proj_dims": 16}
UNIFIED_AUDIO = {"audio_embed_dim": 16}
#: After the release that is shaped so: what its text model has besides ``TEXT``.
SHAPES: dict[str, dict[str, Any]] = {"31B": TOWER, "26B": TOWER | EXPERTS, "E2B": SMALL, "12B": {}}


def tiny_gemma4(shape: str, audio: bool = False, **changes: Any) -> Any:
    """A model shaped like a release; sharper than an untrained one, so that what it says depends on what it reads."""
    torch.manual_seed(20261130)
    tokens = {
        "boi_token_id": BOI,
        "eoi_token_id": EOI,
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "audio_token_id": AUDIO,
    }
    text = TEXT | SHAPES[shape] | changes
    parts = {"text_config": text, "audio_config": (UNIFIED_AUDIO if shape == "12B" else AUDIO_TOWER) if audio else None}
    model: Any
    if shape == "12B":
        unified = Gemma4UnifiedConfig(vision_config=UNIFIED_VISION, **parts, **tokens)
        model = Gemma4UnifiedForConditionalGeneration(unified)
    else:
        vision = VISION | ({"use_clipped_linears": True} if shape == "E2B" else {"standardize": True})
        model = Gemma4ForConditionalGeneration(Gemma4Config(vision_config=vision, **parts, **tokens))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "position" in name or "pos_embedding" in name:
                parameter.normal_(0, 0.3)
            elif parameter.dim() > 1 and "embed_tokens" not in name:
                parameter.mul_(6.0)
    return model.eval()


def picture(seed: int, shape: str, size: tuple[int, int] = SHORT) -> dict[str, torch.Tensor]:
    """One picture of ``size`` tokens as the image processor gives it, padded to 32 tokens."""
    rows, columns = size
    side, merged = (1, 8) if shape == "12B" else (2, 4)
    rows, columns, padded = rows * side, columns * side, 32 * side**2
    pixels = torch.zeros(1, padded, 3 * merged**2)
    pixels[0, : rows * columns] = torch.rand(
        rows * columns, pixels.shape[-1], generator=torch.Generator().manual_seed(seed)
    )
    positions = torch.full((1, padded, 2), -1)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    positions[0, : rows * columns] = torch.stack([x, y], dim=-1).flatten(0, 1)
    return {"pixel_values": pixels, "image_position_ids": positions}


def media(shape: str, pictures: list[tuple[int, tuple[int, int]]]) -> Media:
    """Pictures by seed and size, one after another."""
    ids: tuple[int, ...] = ()
    digests, all_tensors = [], []
    for seed, size in pictures:
        tensors = picture(seed, shape, size)
        digests.append((len(ids) + 1, hashlib.sha256(tensors["pixel_values"].numpy().tobytes()).digest()))
        ids += (BOI, *(IMAGE,) * (size[0] * size[1]), EOI)
        all_tensors.append(tensors)
    joined = {name: torch.cat([tensors[name] for tensors in all_tensors]) for name in all_tensors[0]}
    return Media(ids, joined, tuple(digests))
