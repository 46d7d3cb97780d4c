"""Releases with random weights in the layouts that are benchmarked, made once and kept.

The vocabulary, the processor and the vision tower are those of the tiny release of the tests, which is read
anywhere without a download; what is measured is the text model and the head.

    .venv/bin/python benchmarks/checkpoints.py [layout ...]
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from quaver.heads.joint_schema import JointSchemaHead

ROOT = Path(__file__).parents[1]
TINY = ROOT / "tests/golden/clef-flash-tiny"
CACHE = ROOT / ".cache/benchmarks"


@dataclass(frozen=True, slots=True)
class Layout:
    """What ``text`` changes of the tiny release's text configuration, and its head's sizes without the hidden one."""

    text: dict[str, Any]
    head: dict[str, int]


def hybrid(layers: int) -> list[str]:
    """Three gated delta layers, then one of attention, as in every Qwen3.5 model."""
    return ["full_attention" if number % 4 == 3 else "linear_attention" for number in range(layers)]


def rotary(head_dim: int, sections: list[int]) -> dict[str, Any]:
    """Qwen3.5's rotary embedding over a quarter of ``head_dim``, half of which the sections share out."""
    assert 8 * sum(sections) == head_dim
    return {
        "mrope_interleaved": True,
        "mrope_section": sections,
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e7,
        "rope_type": "default",
    }


CLEF_HEAD = {"width": 1024, "routing_layers": 2, "layers": 4, "heads": 16, "feedforward": 4096}
LAYOUTS = {
    "hybrid-0.5b": Layout(
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "layer_types": hybrid(24),
            "intermediate_size": 3584,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "rope_parameters": rotary(256, [11, 11, 10]),
        },
        CLEF_HEAD,
    ),
    "dense-0.1b": Layout(
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "layer_types": ["full_attention"] * 12,
            "intermediate_size": 2048,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "rope_parameters": rotary(64, [3, 3, 2]),
        },
        {"width": 512, "routing_layers": 2, "layers": 4, "heads": 8, "feedforward": 2048},
    ),
    # That of clef-flash, its vocabulary included.
    "flash-9b": Layout(
        {
            "vocab_size": 248_320,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "layer_types": hybrid(32),
            "intermediate_size": 12_288,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "rope_parameters": rotary(256, [11, 11, 10]),
        },
        CLEF_HEAD,
    ),
}


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_chat_template(folder: Path) -> None:
    """Makes a chat model of what lies in ``folder``, with the settings of the tiny release's tokenizer."""
    settings = json.loads((TINY / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))


def checkpoint(name: str, cache: Path = CACHE, device: str = "cpu") -> Path:
    """The folder of layout ``name`` below ``cache``, in bfloat16; made on ``device`` unless it is there.

    ``tiny`` is the release of the tests itself. Raises KeyError for a layout that does not exist.
    """
    if name == "tiny":
        return TINY
    layout, folder = LAYOUTS[name], cache / name
    if not folder.exists():
        unfinished = folder.with_name(f"{name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _write(layout, unfinished, device)
        unfinished.rename(folder)
    return folder


def _write(layout: Layout, folder: Path, device: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "processor_config.json"):
        shutil.copy(TINY / name, folder / name)
    config = json.loads((TINY / "config.json").read_text())
    config["text_config"] |= layout.text
    config["vision_config"]["out_hidden_size"] = layout.text["hidden_size"]
    head_config = {"hidden_size": layout.text["hidden_size"], **layout.head}
    torch.manual_seed(20261130)
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        try:
            Qwen3_5ForConditionalGeneration(Qwen3_5Config(**config)).save_pretrained(folder)
            head = JointSchemaHead(**head_config)
        finally:
            torch.set_default_dtype(torch.float32)
    save_file(head.state_dict(), folder / "joint_head.safetensors")
    (folder / "joint_head_config.json").write_text(json.dumps(head_config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layouts", nargs="*", default=["hybrid-0.5b", "dense-0.1b"], help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder to make them in")
    parser.add_argument("--device", default="cpu", help="where the weights are drawn")
    arguments = parser.parse_args()
    for name in arguments.layouts:
        print(checkpoint(name, arguments.cache, arguments.device))


if __name__ == "__main__":
    main()
