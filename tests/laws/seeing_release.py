"""Tiny chat models that see, as release folders: random weights, the processor and tokenizer of the golden release."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from chat_models import QWEN3_5_WITH_MEDIA
from tokenizers import Tokenizer
from transformers import AutoConfig, Qwen3_5ForConditionalGeneration, Qwen3_5Model, Qwen3_5MoeForConditionalGeneration
from vectors import FLASH

FILES = ("tokenizer_config.json", "processor_config.json")
#: Labels that the golden release's tokenizer has no token for.
WORDS = ("yes", "Yes", "YES", "no", "No", "NO")
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
CLASSES: dict[str, Any] = {
    "qwen3_5": Qwen3_5ForConditionalGeneration,
    "qwen3_5_moe": Qwen3_5MoeForConditionalGeneration,
    "bare": Qwen3_5Model,
}


def tokenizer_with(words: Sequence[str] = WORDS, control: Mapping[str, str] | None = None) -> str:
    """The golden release's ``tokenizer.json`` with a token for each of ``words``, in place of the longest it has,
    and its control tokens renamed as ``control`` says."""
    file = FLASH / "tokenizer.json"
    text = file.read_text()
    for old, new in (control or {}).items():
        text = text.replace(json.dumps(old), json.dumps(new))
    spec, tokenizer = json.loads(text), Tokenizer.from_file(str(file))
    vocabulary, merges = spec["model"]["vocab"], spec["model"]["merges"]
    new: list[tuple[str, str]] = []
    for word in words:
        whole, *rest = tokenizer.encode(word).tokens
        for piece in rest:
            new.append((whole, piece))
            whole += piece
    pairs = list(dict.fromkeys(new))
    for pair in pairs:
        # The last merge makes a token that no other merge is made of.
        freed = "".join(merges.pop())
        vocabulary["".join(pair)] = vocabulary.pop(freed)
    merges += map(list, pairs)
    return json.dumps(spec)


def seeing_release(to: Path, kind: str = "qwen3_5", template: str = QWEN3_5_WITH_MEDIA) -> Path:
    """A release in ``to``, of a ``kind`` of ``CLASSES``."""
    config = json.loads((FLASH / "config.json").read_text())
    text = {name: value for name, value in config["text_config"].items() if name != "model_type"}
    model_type = "qwen3_5_moe" if kind == "qwen3_5_moe" else "qwen3_5"
    vision = {name: value for name, value in config["vision_config"].items() if name != "model_type"}
    tokens = {name: value for name, value in config.items() if name.endswith("_token_id")}
    made: Any = AutoConfig.for_model(
        model_type,
        text_config=text | (EXPERTS if kind == "qwen3_5_moe" else {}),
        vision_config=vision,
        tie_word_embeddings=False,
        **tokens,
    )
    torch.manual_seed(20261202)
    model = CLASSES[kind](made)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Sharper than an untrained model, so that answers depend on what was read and seen.
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(3.0)
    to.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(to)
    for name in FILES:
        shutil.copy(FLASH / name, to / name)
    (to / "tokenizer.json").write_text(tokenizer_with())
    (to / "chat_template.jinja").write_text(template)
    return to
