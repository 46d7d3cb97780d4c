"""Who is measured: Quaver, and the Clef reference in a loop over requests, each in a process of its own.

In one process the OpenMP workers of both would be more than the CPUs, and then they sleep between any two operations:
both sides took up to 1.6 times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import torch
from clef_finetune._vendor import joint_schema_model as reference
from safetensors.torch import load_file
from torch import nn
from transformers import AutoTokenizer, Qwen3_5ForConditionalGeneration

import quaver
from quaver.decider import Decider
from quaver.models.backbone import Row
from quaver.models.clef import load_clef
from quaver.models.placement import in_a_thread_that_ends, prepare_thread
from quaver.models.release import inspect

#: Room for some states of the longest kind that is asked about.
CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """Which releases are measured in which precision, and how much: ``scale`` 1 is the full size of every row.

    ``rounds`` None leaves their number to the rows. ``hybrid`` has recurrent layers, ``dense`` has none.
    """

    hybrid: Path
    dense: Path
    small: Path
    dtype: str
    scale: float = 1.0
    rounds: int | None = None

    def tokens(self, full: int) -> int:
        return max(16, round(full * self.scale))

    def count(self, full: int, least: int = 2) -> int:
        return max(min(full, least), round(full * self.scale))

    def decider(self, release: Path, cache_bytes: int = CACHE_BYTES) -> Decider[Any]:
        return quaver.load(str(release), device="cpu", dtype=self.dtype, state_cache_bytes=cache_bytes)

    def reference(self, release: Path) -> Reference:
        return Reference(_load, release, self.dtype)

    def bare(self, release: Path) -> Bare:
        return Bare(_load_bare, release, self.dtype)


class _Apart:
    """A side in a process of its own, in which ``load`` is called with the release and the precision."""

    def __init__(self, load: Callable[[Path, str], None], release: Path, dtype: str) -> None:
        self._process = ProcessPoolExecutor(1, get_context("spawn"), load, (release, dtype))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._process.shutdown()


class Bare(_Apart):
    """Our backbone alone, without queue, scheduler, head or cache."""

    def forward(self, ids: tuple[int, ...]) -> None:
        self._process.submit(_forward_bare, ids).result()


class Reference(_Apart):
    """The published code over transformers' own model: one request after another, nothing kept between them."""

    def systemone(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answers a body."""
        return self._process.submit(_systemone, body).result()

    def forward(self, ids: tuple[int, ...]) -> None:
        """The backbone alone."""
        self._process.submit(_forward, ids).result()

    def flops(self, tokens: int) -> float:
        """Of the matrix products that a backbone cannot do without: its linear layers and causal attention."""
        return self._process.submit(_flops, tokens).result()


#: Of the process that this is.
_loaded: dict[str, Any] = {}


def _load(release: Path, dtype: str) -> None:
    precision = getattr(torch, dtype)
    backbone = Qwen3_5ForConditionalGeneration.from_pretrained(release, dtype=precision)
    weights = load_file(release / "joint_head.safetensors")
    head = reference.JointSchemaHead(**json.loads((release / "joint_head_config.json").read_text()))
    head.load_state_dict(weights)
    _loaded["model"] = reference.ClefModel(backbone, head.to(precision)).eval()
    _loaded["text"] = backbone.model.language_model
    # For text the reference asks its processor only for the tokenizer.
    _loaded["processor"] = SimpleNamespace(tokenizer=AutoTokenizer.from_pretrained(release))


def _systemone(body: dict[str, Any]) -> dict[str, Any]:
    answered: dict[str, Any] = reference.systemone(_loaded["model"], _loaded["processor"], body)
    return answered


@torch.inference_mode()
def _forward(ids: tuple[int, ...]) -> None:
    _loaded["text"](input_ids=torch.tensor([ids]), use_cache=False)


def _flops(tokens: int) -> float:
    layers, config = _loaded["text"].layers, _loaded["text"].config
    linear = sum(module.weight.numel() for module in layers.modules() if isinstance(module, nn.Linear))
    attention = sum(hasattr(layer, "self_attn") for layer in layers)
    width = config.num_attention_heads * config.head_dim
    return 2.0 * linear * tokens + 2.0 * attention * width * tokens**2


def _load_bare(release: Path, dtype: str) -> None:
    prepare_thread()
    _loaded["backbone"] = in_a_thread_that_ends(lambda: load_clef(inspect(release), "cpu", dtype)).backbone


def _forward_bare(ids: tuple[int, ...]) -> None:
    backbone = _loaded["backbone"]
    inputs = backbone.prepare(ids)
    backbone.forward([Row(inputs, 0, len(inputs))])
