"""Folds a temperature into a joint schema head, so that the calibrated model needs no file beside it.

All logits of the head are ``scale * cosine`` terms and one residual: dividing them by T is subtracting
ln T from both log scales and dividing the residual scorer's last layer by T. It is exact as long as the
scales stay within the head's clamp.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quaver.errors import BadRelease
from quaver.evaluate.calibrate import single_temperature
from quaver.heads.checkpoint import WEIGHTS
from quaver.heads.joint_schema import MAX_LOG_SCALE
from quaver.questions.calibration import Calibration

SCALES = ("prior_logit_scale", "joint_logit_scale")
LAST_LAYER = ("residual_scorer.3.weight", "residual_scorer.3.bias")


def fold(tensors: Mapping[str, Tensor], temperature: float) -> dict[str, Tensor]:
    """A joint head's tensors with all logits divided by ``temperature``; those that change are float32 or wider.

    Raises BadRelease when a scale would leave the head's clamp, where the result would not be exact.
    """
    folded = dict(tensors)
    for name in SCALES:
        scale = _wide(tensors[name]).clamp(max=MAX_LOG_SCALE) - math.log(temperature)
        if scale.item() > MAX_LOG_SCALE:
            raise BadRelease(f"temperature {temperature:g} takes {name} beyond the head's limit; serve it as a file")
        folded[name] = scale
    for name in LAST_LAYER:
        folded[name] = _wide(tensors[name]) / temperature
    return folded


def fold_release(release: Path, name: str, calibration: Calibration, out: Path) -> None:
    """Write to ``out`` the release called ``name`` with its calibration inside; other files are linked or copied.

    ``name`` is the versioned one, ``name@revision``. The new release calls itself ``name+id`` with the
    calibration's id, so every answer states it, and the file it came from is refused for it. Raises
    BadRelease for another model or a folder that exists, BadRequest when the calibration is not a single
    temperature.
    """
    calibration.require(name)
    temperature = single_temperature(calibration)
    tensors = fold(load_file(release / WEIGHTS), temperature)
    config = json.loads((release / "config.json").read_text(encoding="utf-8"))
    config["name"] = f"{name.partition('@')[0]}+{calibration.id}"
    try:
        shutil.copytree(release, out, copy_function=_link, ignore=shutil.ignore_patterns(WEIGHTS, "config.json"))
    except FileExistsError as error:
        raise BadRelease(f"{out} exists already; name a new folder") from error
    save_file(tensors, out / WEIGHTS)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _link(source: str, target: str) -> None:
    """A hard link, so that weights take no space twice; a copy where the file system has no links to give."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)
