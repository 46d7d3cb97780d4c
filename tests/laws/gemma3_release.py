"""A tiny Gemma 3 that sees, as a release folder: random weights beside the tokenizer and template of the release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from chat_models import folder
from gemma3_tiny import SIDE, TOKENS, tiny_gemma3
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

#: Tokens of the model that mean something, by their names in its configuration.
NAMED = {
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
    "image_token_index": "<image_soft_token>",
}
#: Rows of the embedding in the release, somewhat more than it has tokens.
VOCABULARY = 262_208
#: Merges of the tokenizer that are kept; the file of the release takes seconds to read.
KEPT = 20_000
#: Those of the release, but for the size of a picture.
PICTURES = {
    "do_convert_rgb": None,
    "do_normalize": True,
    "do_pan_and_scan": None,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": TOKENS,
    "image_std": [0.5, 0.5, 0.5],
    "pan_and_scan_max_num_crops": None,
    "pan_and_scan_min_crop_size": None,
    "pan_and_scan_min_ratio_to_activate": None,
    "processor_class": "Gemma3Processor",
    "resample": 2,
    "rescale_factor": 1 / 255,
    "size": {"height": SIDE, "width": SIDE},
}


def publish(model: Any, to: Path) -> Path:
    """Writes the weights under the names that published files have; gives the file."""
    model.save_pretrained(to)
    file = to / "model.safetensors"
    tensors = load_file(file)
    tower = "vision_tower."
    named = {name.replace(tower, f"{tower}vision_model."): tensor for name, tensor in tensors.items()}
    save_file(named, file, {"format": "pt"})
    return file


def gemma3_release(to: Path, processor: bool = True, **changes: Any) -> Path:
    """A release in ``to``; the test is skipped where the package with the tokenizer is not installed."""
    source = folder("gemma3")
    to.mkdir(parents=True)
    (to / "tokenizer.json").write_text(_pruned((source / "tokenizer.json").read_text()))
    tokens = Tokenizer.from_file(str(to / "tokenizer.json"))
    model = tiny_gemma3(vocab_size=VOCABULARY, **changes)
    for name, token in NAMED.items():
        setattr(model.config, name, tokens.token_to_id(token))
    publish(model, to)
    shutil.copy(source / "tokenizer_config.json", to)
    template = json.loads((to / "tokenizer_config.json").read_text())["chat_template"]
    (to / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    if processor:
        (to / "preprocessor_config.json").write_text(json.dumps(PICTURES))
        named = {"image_seq_length": TOKENS, "processor_class": "Gemma3Processor"}
        (to / "processor_config.json").write_text(json.dumps(named))
    return to


def _pruned(tokenizer: str) -> str:
    """The tokenizer with its first merges only; the tokens that it still has keep their ids."""
    spec = json.loads(tokenizer)
    model = spec["model"]
    kept = {token["content"] for token in spec["added_tokens"]}
    # Characters and bytes are what merges are made of.
    kept |= {token for token in model["vocab"] if len(token) == 1 or token.startswith("<0x")}
    merges = []
    for one, other in model["merges"][:KEPT]:
        if one in kept and other in kept:
            merges.append((one, other))
            kept.add(one + other)
    model["vocab"] = {token: number for token, number in model["vocab"].items() if token in kept}
    model["merges"] = merges
    return json.dumps(spec)
