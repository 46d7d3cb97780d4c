"""Which attention masks transformers builds for Gemma 4 and its unified twin, read out of a running forward.

Tiny models with random weights, no download: what is looked at is which tokens each layer may see.

    python examples/gemma4_masks.py

C: a token sees itself and what is before it. B: it sees all of its own image. W: of what is before it, it sees
the last ``sliding_window`` tokens only. Released rule: full layers C, sliding layers (C or B) and W.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import (
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
)
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.modeling_utils import AttentionInterface

WINDOW, IMAGE, TEXT = 16, 92, 8
#: Tokens of an image: shorter than the window, and longer.
SIZES = (12, 24)
MODELS = ("gemma4", "gemma4_unified")
PATHS = ("forward", "generate, dynamic cache", "generate, static cache")
RELEASED = {"full": "C", "sliding": "(C or B) and W"}

_seen: dict[str, Tensor] = {}


def _record(module: Any, query: Tensor, _: Tensor, __: Tensor, mask: Tensor, **___: Any) -> tuple[Tensor, None]:
    """An attention function that keeps the mask of the first forward, by kind of layer."""
    _seen.setdefault("sliding" if module.is_sliding else "full", mask[0, 0, :, : query.shape[2]] == 0)
    return torch.zeros_like(query).transpose(1, 2), None


AttentionInterface.register("recorded", _record)
AttentionMaskInterface.register("recorded", eager_mask)


def tiny(kind: str) -> Any:
    """A model of two layers, one of each kind; no weights of it matter."""
    text: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 8,
        "sliding_window": WINDOW,
        "use_bidirectional_attention": "vision",
    }
    ids = {"image_token_id": IMAGE, "video_token_id": 93, "audio_token_id": 94}
    if kind == "gemma4_unified":
        return Gemma4UnifiedForConditionalGeneration(Gemma4UnifiedConfig(text_config=text, **ids)).eval()
    text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 97}
    return Gemma4ForConditionalGeneration(Gemma4Config(text_config=text, **ids)).eval()


def seen(kind: str, path: str, size: int) -> dict[str, Tensor]:
    """[L, L] by kind of layer, true where a token is seen, with one image of ``size`` tokens between texts."""
    model = tiny(kind)
    model.model.language_model.set_attn_implementation("recorded")
    ids = torch.tensor([[*range(1, TEXT), *[IMAGE] * size, *range(1, TEXT)]])
    asked = {"input_ids": ids, "mm_token_type_ids": (ids == IMAGE).long()}
    _seen.clear()
    with torch.inference_mode():
        if path == "forward":
            model(**asked)
        else:
            cache = path.split()[1]
            model.generate(**asked, max_new_tokens=1, do_sample=False, cache_implementation=cache, pad_token_id=0)
    return dict(_seen)


def rules(size: int) -> dict[str, Tensor]:
    """Every rule that is known, [L, L]."""
    length = 2 * (TEXT - 1) + size
    q, k = torch.arange(length)[:, None], torch.arange(length)[None]
    image = (torch.arange(length) >= TEXT - 1) & (torch.arange(length) < TEXT - 1 + size)
    causal, window, block = k <= q, k > q - WINDOW, image[:, None] & image[None]
    return {
        "C": causal,
        "C or B": causal | block,
        "C and W": causal & window,
        "(C or B) and W": (causal | block) & window,
        "(C and W) or B": causal & window | block,
    }


def table() -> Iterator[tuple[str, str, int, str, str]]:
    """Model, path, tokens of the image, kind of layers and the rules that its mask equals."""
    for kind in MODELS:
        for path in PATHS:
            for size in SIZES:
                for layers, mask in sorted(seen(kind, path, size).items()):
                    equal = [name for name, rule in rules(size).items() if torch.equal(mask, rule)]
                    yield kind, path, size, layers, " = ".join(equal) or "another"


def main() -> None:
    print(f"transformers {transformers.__version__}, window {WINDOW}\n")
    print("| model | path | image | layers | mask | as released |\n|---|---|---|---|---|---|")
    for kind, path, size, layers, rule in table():
        as_released = "yes" if RELEASED[layers] in rule.split(" = ") else "**no**"
        print(f"| {kind} | {path} | {size} | {layers} | {rule} | {as_released} |")


if __name__ == "__main__":
    main()
