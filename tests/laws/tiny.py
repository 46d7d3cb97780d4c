"""Small causal models for the laws of the engine: random weights, a joint head or labels, both kinds of backbone."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from chat_families import tiny_chat
from torch import Tensor
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from quaver.engine.causal import CausalProgress, CausalPrompt, CausalReader
from quaver.engine.job import Reading
from quaver.engine.joint import JointHead
from quaver.engine.label import LabelHead
from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.chat import ChatBackbone
from quaver.models.qwen3_5 import Qwen35Backbone
from quaver.prompts.encoded import Encoded, EncodedQuestion
from quaver.prompts.label_encoded import LabelPlace

VOCABULARY = 97
#: Tokens of the joint models that stand for what is seen; texts beside pictures keep clear of them.
VISION_START, IMAGE, VIDEO = 94, 95, 96
KINDS = ("hybrid", "dense")
#: Chat models that are read by labels, and their families.
LABEL_KINDS = {"label hybrid": "qwen3.5", "label dense": "qwen3"}
LAYERS = {"hybrid": ["linear_attention", "full_attention", "linear_attention"], "dense": ["full_attention"] * 3}
Reader = CausalReader[Any]
Prompt = CausalPrompt[Any]
#: float32: what a shared pass, a part or a cached state may change in a probability.
TOLERANCE = 2e-5


#: Where the models of the tests run; ``scripts/gpu-check`` sets it.
DEVICE = os.environ.get("QUAVER_TEST_DEVICE", "cpu")


@cache
def model(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """A backbone and its head."""
    if kind in LABEL_KINDS:
        chat = ChatBackbone(
            tiny_chat(LABEL_KINDS[kind], vocab_size=VOCABULARY, max_position_embeddings=8192).to(DEVICE, dtype)
        )
        return chat, LabelHead(chat.output_embeddings, chat.softcap)
    torch.manual_seed(20261130)
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "layer_types": LAYERS[kind],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": False,
    }
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 48}
    config: Any = Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        vision_start_token_id=VISION_START,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    released: Any = Qwen3_5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in released.named_parameters():
            # Sharper than an untrained model, so that answers depend on what was read.
            if parameter.dim() > 1 and "language_model" in name:
                parameter.mul_(3.0)
    head = JointSchemaHead(48, width=32, routing_layers=2, layers=2, heads=4, feedforward=64).eval()
    with torch.no_grad():
        for scale in (head.prior_logit_scale, head.joint_logit_scale, head.residual_gate):
            scale.fill_(1.0)
    backbone = Qwen35Backbone(released.to(DEVICE, dtype))
    return backbone, JointHead(head.to(DEVICE, torch.promote_types(dtype, torch.float32)), backbone.output_embeddings)


def reader(
    kind: str, cache_bytes: int = 1 << 24, deterministic: bool = False, dtype: torch.dtype = torch.float32
) -> Reader:
    return CausalReader(*model(kind, dtype), cache_bytes, deterministic)


def tokens(seed: int, count: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(VOCABULARY), k=count))


def prompt(
    state: Sequence[int],
    schema: int = 1,
    salt: str = "",
    kind: str = "hybrid",
    options: int = 3,
    below: int = VOCABULARY,
) -> Prompt:
    """``state``, then the questions that ``schema`` stands for, of tokens ``below`` a number; chat models are
    asked one."""
    rng = random.Random(schema)
    if kind in LABEL_KINDS:
        groups = tuple((token,) for token in rng.sample(range(VOCABULARY), min(options + schema % 3, 40)))
        place = LabelPlace((*state, *rng.choices(range(VOCABULARY), k=12 + schema % 5)), len(state), groups)
        return CausalPrompt(place, model(kind)[0].prepare(place.ids), salt)
    ids = list(state)
    questions = []
    for number in range(1 + schema % 3):
        start = len(ids)
        ids += rng.choices(range(below), k=5)
        spans = []
        for _ in range(options + number):
            begin = len(ids)
            ids += rng.choices(range(below), k=rng.randint(1, 3))
            spans.append((begin, len(ids)))
        names = tuple(map(str, range(len(spans))))
        questions.append(EncodedQuestion("choice", (start, start + 5), tuple(spans), names))
    ids += rng.choices(range(below), k=4)
    encoded = Encoded(tuple(ids), tuple(questions), media_start=0, state_end=len(state))
    return CausalPrompt(encoded, model(kind)[0].prepare(encoded.ids), salt)


def finish(on: Reader, progress: CausalProgress[Any], part: int = 1 << 20) -> Reading:
    """Reads what is left of one prompt, ``part`` tokens at a time."""
    outcome = None
    while progress.remaining:
        (outcome,) = on.step([(progress, min(part, progress.remaining))]).outcomes
    assert isinstance(outcome, Reading), outcome
    return outcome


def read(on: Reader, asked: Prompt, part: int = 1 << 20) -> Reading:
    """One prompt from beginning to end, kept afterwards."""
    progress = on.open(asked)
    reading = finish(on, progress, part)
    on.keep(progress)
    on.close(progress)
    on.tree.check()
    return reading


def fresh(kind: str, asked: Prompt, dtype: torch.dtype = torch.float32) -> list[list[float]]:
    """What a reader that knows nothing says."""
    return probabilities(read(reader(kind, cache_bytes=0, dtype=dtype), asked))


def probabilities(reading: Reading) -> list[list[float]]:
    return [row.double().softmax(-1).tolist() for row in reading.logits]


def distance(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """The largest difference of a probability."""
    rows = zip(one, other, strict=True)
    return max(abs(a - b) for x, y in rows for a, b in zip(x, y, strict=True))


def same_bits(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
