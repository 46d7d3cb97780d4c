"""A tiny LFM2-VL model with random weights, by itself and as a release of Liquid's d1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from seeing_release import tokenizer_with
from tokenizers import Tokenizer
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration
from vectors import FLASH

IMAGE, VOCABULARY, FACTOR = 95, 200, 2


def tiny_lfm2_vl(vocabulary: int = VOCABULARY, image: int = IMAGE, heads: int = 2) -> Any:
    """Sharper than an untrained model, so that what it says depends on what it reads and sees."""
    torch.manual_seed(20261201)
    text = {
        "model_type": "lfm2",
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        # vLLM reads no heads on a CPU that are narrower than 32.
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "block_auto_adjust_ff_dim": False,
        # Published configurations say these again, and vLLM asks for them.
        "block_dim": 64,
        "conv_dim": 64,
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


#: Control tokens of LFM2-VL in place of some of the golden release's.
CONTROL = {
    "<|endoftext|>": "<|startoftext|>",
    "<|vision_start|>": "<|image_start|>",
    "<|vision_end|>": "<|image_end|>",
    "<|image_pad|>": "<image>",
    "<|vision_pad|>": "<|img_thumbnail|>",
    "<|box_start|>": "<|img_row_1_col_1|>",
    "<|box_end|>": "<|img_row_1_col_2|>",
    "<|quad_start|>": "<|img_row_2_col_1|>",
}
TEMPLATE = """\
{{- '<|startoftext|>' -}}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{- message.content }}{%- else %}
        {%- for part in message.content %}{{- '<image>' if part.type == 'image' else part.text }}{%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
TOWER = "model.vision_tower."
#: Small pictures are one tile of up to 16 tokens; larger ones two tiles and a thumbnail.
PROCESSOR = {
    "processor_class": "Lfm2VlProcessor",
    "image_processor": {
        "image_processor_type": "Lfm2VlImageProcessor",
        "encoder_patch_size": 16,
        "downsample_factor": FACTOR,
        "min_image_tokens": 4,
        "max_image_tokens": 16,
        "tile_size": 64,
        "max_tiles": 2,
    },
}


def liquid_release(to: Path, published: bool = True, heads: int = 2) -> Path:
    """A d1 release in ``to``; without its mark in the config unless ``published``."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "tokenizer.json").write_text(tokenizer_with(control=CONTROL))
    ids = Tokenizer.from_file(str(to / "tokenizer.json"))
    tiny_lfm2_vl(ids.get_vocab_size(), ids.token_to_id("<image>"), heads).save_pretrained(to)
    # transformers writes the tower's tensors under newer names than published files have.
    weights = load_file(to / "model.safetensors")
    named = {name.replace(TOWER, f"{TOWER}vision_model."): weight.clone() for name, weight in weights.items()}
    save_file(named, to / "model.safetensors", metadata={"format": "pt"})
    settings = (FLASH / "tokenizer_config.json").read_text()
    for old, new in CONTROL.items():
        settings = settings.replace(json.dumps(old), json.dumps(new))
    (to / "tokenizer_config.json").write_text(settings)
    (to / "chat_template.jinja").write_text(TEMPLATE)
    (to / "processor_config.json").write_text(json.dumps(PROCESSOR))
    if published:
        config = json.loads((to / "config.json").read_text())
        (to / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling_d1.D1Model"}}))
    return to
