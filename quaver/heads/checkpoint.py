"""Heads from disk, strictly: every tensor of the architecture, no other, each in its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from quaver.errors import BadRelease
from quaver.heads.joint_schema import JointSchemaHead

WEIGHTS = "joint_head.safetensors"
CONFIG = "joint_head_config.json"
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def load_joint_schema_head(
    path: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> JointSchemaHead:
    """The joint schema head of the release in ``path``, ready to read.

    Raises BadRelease that names the key, tensor or file when anything is missing, extra or misshapen.
    """
    config = _read_config(path / CONFIG)
    # Without memory of its own: the tensors of the file take the places of its parameters.
    with torch.device("meta"):
        head = JointSchemaHead(**config)
    try:
        tensors = load_file(path / WEIGHTS, device=str(device))
    except (OSError, SafetensorError) as error:
        raise BadRelease(f"{path / WEIGHTS} cannot be read: {error}") from error
    _compare(path / WEIGHTS, head.state_dict(), tensors)
    head.load_state_dict(tensors, assign=True)
    return head.to(dtype=dtype).eval().requires_grad_(False)


def _read_config(file: Path) -> dict[str, Any]:
    """The head's arguments, checked against its signature."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRelease(f"{file} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise BadRelease(f"{file} must hold a JSON object")
    known = signature(JointSchemaHead).parameters
    for key, value in config.items():
        if key not in known:
            raise BadRelease(f"{file} has the unknown key {key!r}; known are {', '.join(known)}")
        # By exact type: JSON's true is a bool, which Python takes for an int.
        if key == "dropout":
            fits, rule = type(value) in (int, float) and 0 <= value <= 1, "a number between 0 and 1"
        else:
            fits, rule = type(value) is int and value >= 1, "a positive whole number"
        if not fits:
            raise BadRelease(f"{file} has {key} = {value!r}; it must be {rule}")
    missing = [key for key, parameter in known.items() if parameter.default is parameter.empty and key not in config]
    if missing:
        raise BadRelease(f"{file} lacks {', '.join(missing)}")
    if config["width"] % config["heads"]:
        raise BadRelease(f"{file} has a width of {config['width']}, which {config['heads']} heads do not divide")
    return config


def _compare(file: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    for name, tensor in expected.items():
        if name not in found:
            raise BadRelease(f"{file} lacks the tensor {name}")
        if found[name].shape != tensor.shape:
            raise BadRelease(f"{file} has {name} as {tuple(found[name].shape)}; it must be {tuple(tensor.shape)}")
        # Quantised heads have scales beside their tensors; cast without them, the numbers would be others.
        if found[name].dtype not in DTYPES:
            raise BadRelease(
                f"{file} has {name} in {found[name].dtype}; heads are read in {', '.join(map(str, DTYPES))}"
            )
    extra = sorted(found.keys() - expected.keys())
    if extra:
        raise BadRelease(f"{file} has the unknown tensor {extra[0]}")
