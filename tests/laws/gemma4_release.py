"""Tiny Gemma 4 models that see, as release folders: random weights, a small tokenizer, transformers' processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chat_models import GEMMA4_CONTROL, GEMMA4_TOKENS, GEMMA4_WITH_MEDIA, folder
from gemma4_tiny import tiny_gemma4
from tokenizers import AddedToken, Tokenizer
from transformers import Gemma4ImageProcessor, Gemma4UnifiedImageProcessor

#: Tokens of the model that mean something, by their names in its configuration.
NAMED = {
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
}
#: Patches as small as those of the tiny models; a picture takes up to 70 tokens, of which the window holds 16.
SMALL = {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70}


def gemma4_release(to: Path, shape: str = "12B", processor: bool = True, **changes: Any) -> Path:
    """A release in ``to``, shaped as one of ``gemma4_tiny.SHAPES``."""
    tokens = Tokenizer.from_file(str(folder("smollm2") / "tokenizer.json"))
    control = ("<bos>", "<|audio|>", *GEMMA4_CONTROL)
    tokens.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    size = tokens.get_vocab_size()
    per_layer = {} if shape == "12B" else {"vocab_size_per_layer_input": size}
    model = tiny_gemma4(shape, vocab_size=size, **per_layer, **changes)
    for name, token in NAMED.items():
        setattr(model.config, name, tokens.token_to_id(token))
    model.save_pretrained(to)
    tokens.save(str(to / "tokenizer.json"))
    (to / "tokenizer_config.json").write_text(json.dumps(GEMMA4_TOKENS))
    (to / "chat_template.jinja").write_text(GEMMA4_WITH_MEDIA)
    if processor:
        made: Any = Gemma4UnifiedImageProcessor if shape == "12B" else Gemma4ImageProcessor
        made(**SMALL).save_pretrained(to)
    return to
