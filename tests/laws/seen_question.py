"""One question about a state with pictures, and how chat models are asked it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from PIL import Image

STATE = "The parcel came late and the box was torn"
QUESTION = {"type": "choice", "instructions": "What is it?", "criteria": {"a": None, "m": "a letter", "z": "a parcel"}}
ASKED = f"{STATE}\n\n---\nQuestion: What is it?\nA. a\nB. m: a letter\nC. z: a parcel\nReply with the letter only."
AS_VLLM = (
    f"{STATE}\n\nQuestion: What is it?\nA: a\nB: m - a letter\nC: z - a parcel\n"
    "Answer with the letter of one option only."
)


@cache
def picture(seed: int, width: int = 300, height: int = 260) -> Image.Image:
    """Coloured squares, so that pictures of different seeds look different at any size."""
    squares = torch.randint(0, 256, (7, 9, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(squares.numpy()).resize((width, height), Image.Resampling.NEAREST)


def body(images: Sequence[Image.Image], state: str = STATE, **more: Any) -> dict[str, Any]:
    return {"state": state, "questions": {"what": QUESTION}, "images": list(images), **more}
