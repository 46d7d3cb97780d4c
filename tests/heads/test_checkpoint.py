"""Heads load whole or not at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vectors import FLASH

from quaver.errors import BadRelease
from quaver.heads.checkpoint import CONFIG, WEIGHTS, load_joint_schema_head


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (CONFIG, WEIGHTS):
        shutil.copy(FLASH / name, tmp_path / name)
    return tmp_path


def test_loads_in_the_wanted_precision() -> None:
    head = load_joint_schema_head(FLASH, dtype=torch.bfloat16)
    stored = load_file(FLASH / WEIGHTS)
    assert not head.training
    assert {name: tensor.tolist() for name, tensor in head.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in stored.items()
    }
    assert {tensor.dtype for tensor in load_joint_schema_head(FLASH).state_dict().values()} == {torch.float32}


def drop(tensors: dict[str, Tensor]) -> None:
    del tensors["layers.1.linear2.bias"]


def add(tensors: dict[str, Tensor]) -> None:
    tensors["layers.9.linear2.bias"] = torch.zeros(4)


def reshape(tensors: dict[str, Tensor]) -> None:
    tensors["prior_logit_scale"] = torch.zeros(1)


def quantise(tensors: dict[str, Tensor]) -> None:
    tensors["layers.0.linear1.weight"] = tensors["layers.0.linear1.weight"].to(torch.int8)


def quantise_to_floats(tensors: dict[str, Tensor]) -> None:
    tensors["layers.0.linear1.weight"] = tensors["layers.0.linear1.weight"].to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quantise, r"layers\.0\.linear1\.weight in torch\.int8; heads are read in torch\.float32"),
        (quantise_to_floats, r"in torch\.float8_e4m3fn"),
        (drop, r"lacks the tensor layers\.1\.linear2\.bias"),
        (add, r"unknown tensor layers\.9\.linear2\.bias"),
        (reshape, r"prior_logit_scale as \(1,\); it must be \(\)"),
    ],
)
def test_wrong_tensors(folder: Path, change: Callable[[dict[str, Tensor]], None], message: str) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(BadRelease, match=message):
        load_joint_schema_head(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wings": 2}, "unknown key 'wings'"),
        ({"width": "64"}, "width = '64'"),
        ({"width": 0}, "width = 0"),
        ({"layers": True}, "layers = True"),
        ({"layers": 2.5}, r"layers = 2\.5; it must be a positive whole number"),
        ({"dropout": -0.5}, r"dropout = -0\.5; it must be a number between 0 and 1"),
        ({"dropout": 2}, "dropout = 2"),
        ({"dropout": True}, "dropout = True"),
        ({"width": 60}, "as .* it must be"),
        ({"heads": 3}, "3 heads do not divide"),
        ({"layers": 3}, r"lacks the tensor layers\.2"),
        ({"hidden_size": 32}, "it must be"),
    ],
)
def test_wrong_configurations(folder: Path, change: dict[str, object], message: str) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | change))
    with pytest.raises(BadRelease, match=message):
        load_joint_schema_head(folder)


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("[]", "JSON object"), ("{}", "lacks hidden")])
def test_broken_configurations(folder: Path, text: str, message: str) -> None:
    (folder / CONFIG).write_text(text)
    with pytest.raises(BadRelease, match=message):
        load_joint_schema_head(folder)


def test_short_and_missing_files(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((FLASH / WEIGHTS).read_bytes()[:-100])
    with pytest.raises(BadRelease, match="cannot be read"):
        load_joint_schema_head(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(BadRelease, match="cannot be read"):
        load_joint_schema_head(folder)
