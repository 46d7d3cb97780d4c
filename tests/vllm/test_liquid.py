"""Liquid's d1 beside vLLM's own route: equal tokens and the same probabilities, with and without pictures."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from liquid_tiny import liquid_release
from PIL import Image

import quaver
from tests.vllm.replies import beside_vllms_route

LATE = {"type": "noul", "instructions": "Is it late?", "criteria": {"true": "it is", "false": "it is not"}}
QUESTIONS: dict[str, Any] = {
    "late": LATE,
    "plain": {"type": "noul", "instructions": "Is it late?"},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"a_parcel": None, "m": "a letter"}},
    "letters": {"type": "choice", "instructions": "Which?", "criteria": {"b": "one", "a": "two", "c": None}},
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
}
STATE = "The parcel came late and the box was torn."


def picture(seed: int, width: int, height: int) -> str:
    squares = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(squares).resize((width, height), Image.Resampling.NEAREST).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


BODIES: dict[str, dict[str, Any]] = {
    "text": {"state": STATE, "questions": QUESTIONS},
    "json": {"state": {"ticket": [STATE, 3, None], "plan": "größer 🙂"}, "questions": QUESTIONS},
    "no state": {"state": None, "questions": QUESTIONS},
    "long": {"state": " ".join(f"On day {day} nobody answered." for day in range(200)), "questions": QUESTIONS},
    "a picture": {"state": STATE, "questions": QUESTIONS, "images": [picture(1, 100, 80)]},
    "two, one in tiles": {"state": STATE, "questions": QUESTIONS, "images": [picture(1, 300, 90), picture(2, 40, 70)]},
    "over a megapixel": {"state": None, "questions": {"late": LATE}, "images": [picture(3, 1500, 1300)]},
}


def test_the_answers_of_vllms_route(serve: Any, tmp_path: Path) -> None:
    # With more heads vLLM 0.32 turns queries of LFM2 by the positions of other tokens on a CPU: its kernel takes
    # each head of [tokens, heads, width] for a token.
    folder = liquid_release(tmp_path / "d1-tiny", heads=1)
    options = ["--dtype", "float32", "--max-model-len", "4096"]
    with (
        serve(folder, tmp_path / "server.log", *options, VLLM_PLUGINS="", TORCHDYNAMO_DISABLE="1") as served,
        quaver.load(str(folder), dtype="float32") as decider,
    ):
        for body in BODIES.values():
            expected, answered = beside_vllms_route(served.url, decider, body, 1e-5)
            facts = {name: facts["argmax_is_label"] for name, facts in expected["diagnostics"].items()}
            assert answered["x_argmax_is_label"] == facts
