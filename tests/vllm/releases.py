"""Releases for vLLM, made from the tiny ones of the golden vectors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration
from vectors import FLASH, OMNI

from quaver.heads.joint_schema import JointSchemaHead

#: The deviation of matrices that transformers draws.
DRAWN = 0.02


def smooth_flash(folder: Path, seed: int = 1) -> Path:
    """clef-flash-tiny with linear heads of 64, which vLLM's kernel for CPUs takes, and weights as smooth as they are
    drawn, so that answers in bfloat16 can be compared."""
    _copy(FLASH, folder)
    config = _config(folder)
    config["text_config"].update(linear_key_head_dim=64, linear_value_head_dim=64)
    config["vision_config"]["num_heads"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    Qwen3_5ForConditionalGeneration(Qwen3_5Config.from_pretrained(folder)).bfloat16().save_pretrained(folder)
    _draw_head(folder)
    return folder


def even_omni(folder: Path) -> Path:
    """clef-omni-tiny with two heads of sight in the place of three, so that two ranks can share them; the weights
    and what is read and heard are the same."""
    _copy(OMNI, folder)
    for weights in OMNI.glob("*.safetensors*"):
        if weights.suffix != ".xz":
            shutil.copy(weights, folder)
    config = _config(folder)
    config["thinker_config"]["vision_config"]["num_heads"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def smooth_omni(folder: Path) -> Path:
    """clef-omni-tiny with matrices scaled down to the deviation with which transformers draws them and a head as it is
    drawn, so that answers in bfloat16 can be compared."""
    torch.manual_seed(1)
    _copy(OMNI, folder)
    for index in OMNI.glob("*.safetensors.index.json"):
        shutil.copy(index, folder)
    for file in OMNI.glob("model*.safetensors"):
        save_file({name: _smooth(tensor) for name, tensor in load_file(file).items()}, folder / file.name)
    _draw_head(folder)
    return folder


def _draw_head(folder: Path) -> None:
    head = JointSchemaHead(**json.loads((folder / "joint_head_config.json").read_text()))
    save_file(head.bfloat16().state_dict(), folder / "joint_head.safetensors")


def _smooth(tensor: Tensor) -> Tensor:
    deviation = float(tensor.float().std()) if tensor.ndim > 1 else 0.0
    return (tensor.float() * (DRAWN / deviation)).to(tensor.dtype) if deviation > DRAWN else tensor


def _copy(release: Path, folder: Path) -> None:
    shutil.copytree(release, folder, ignore=shutil.ignore_patterns("media*", "cases*", "*.safetensors*"))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
