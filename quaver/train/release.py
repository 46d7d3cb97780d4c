"""Writes and opens the release folder of a split model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

from quaver.engine.split import SplitReader
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.encoder import Encoder, load_encoder
from quaver.prompts.split import SplitPrompt
from quaver.train import sources

NAME = "quaver-mini"


def base(data: Path) -> Path:
    """A folder with the packaged encoder and its tokenizer without the cut and padding that it ships with."""
    packaged, folder = sources.encoder_folder(data), data / "base"
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(packaged / name, folder / name)
    spec = json.loads((packaged / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(
        json.dumps({**spec, "truncation": None, "padding": None}, ensure_ascii=False)
    )
    return folder


def write(folder: Path, encoder: Encoder, head: JointSchemaHead, head_config: dict[str, int], source: Path) -> None:
    """All files but the card and the log; weights in float16. ``source`` is the ``base`` that was trained."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_half(encoder.bert), folder / "model.safetensors", metadata={"format": "pt"})
    save_file(_half(head), folder / "joint_head.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config.pop("_name_or_path", None)
    _dump(folder / "config.json", {**config, "name": NAME, "reading": "split", "dtype": "float16"})
    _dump(folder / "joint_head_config.json", head_config)
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")


def set_temperatures(folder: Path, temperatures: Sequence[tuple[float, float]]) -> None:
    """Writes temperature and growth of noul, choice and score questions into the release's config."""
    config = json.loads((folder / "config.json").read_text())
    _dump(folder / "config.json", {**config, "temperatures": [[round(x, 4) for x in pair] for pair in temperatures]})


def open_reader(folder: Path) -> tuple[SplitPrompt, SplitReader]:
    """A release ready to read, without the decider around it."""
    return open_prompt(folder), SplitReader(load_encoder(folder), load_joint_schema_head(folder))


def open_prompt(folder: Path) -> SplitPrompt:
    """The wording and tokens of a release or of the ``base``."""
    return SplitPrompt(Tokenizer.from_file(str(folder / "tokenizer.json")))


def _half(module: nn.Module) -> dict[str, torch.Tensor]:
    tensors = {name: tensor.detach() for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    return {name: tensor.to(torch.float16).contiguous() for name, tensor in tensors.items()}


def _dump(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
