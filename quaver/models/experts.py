"""The experts of a checkpoint, checked one by one: they are merged while loading, where a wrong one is not named."""

from __future__ import annotations

import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from quaver.errors import BadRelease

#: Layer, expert and projection of a tensor of the thinker; the talker has experts of its own.
EXPERT = re.compile(r"(thinker\..*\.experts\.)(\d+\.(gate|up|down)_proj\.weight)")


def check_experts(path: Path) -> None:
    """Raises BadRelease for an expert's tensor that its layer lacks, or that has another shape than its like.

    Reads no more than the headers of the safetensors in ``path``. Experts that come merged are left to the loader.
    """
    layers: dict[str, set[str]] = {}
    usual: dict[str, list[int]] = {}
    for name, shape in _shapes(path).items():
        if match := EXPERT.fullmatch(name):
            layer, member, projection = match.groups()
            layers.setdefault(layer, set()).add(member)
            expected = usual.setdefault(projection, shape)
            if shape != expected:
                raise BadRelease(f"{path} has {name} as {shape} where others are {expected}; download it again")
    for layer, members in layers.items():
        if missing := set().union(*layers.values()) - members:
            raise BadRelease(f"{path} lacks {layer}{min(missing)}; download it again")


def _shapes(path: Path) -> dict[str, list[int]]:
    shapes = {}
    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as tensors:
                shapes.update({name: tensors.get_slice(name).get_shape() for name in tensors.keys()})  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadRelease(f"{file} cannot be read: {error}") from error
    return shapes
