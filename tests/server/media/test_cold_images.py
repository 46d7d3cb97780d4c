"""Answers about images do not depend on what the server read, or refused, before."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asking import QUESTIONS, TEXT
from PIL import Image

from quaver.decider import Decider


def png(side: int) -> str:
    """A picture with a white square of ``side`` pixels in it."""
    image = Image.linear_gradient("L").convert("RGB")
    image.paste((255, 255, 255), (17, 11, 17 + side, 11 + side))
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def numbers(answers: dict[str, Any]) -> dict[str, float]:
    return {"late": answers["late"]["noul"], **answers["what"]["probabilities"]}


@pytest.mark.parametrize(
    ("deterministic", "side", "tolerance"), [(True, 1, 0.0), (False, 64, 1e-5)], ids=["to the bit", "as served"]
)
def test_an_image_first_met_in_a_refused_request(
    load: Callable[..., Decider[Any]], serving: Callable[..., Any], deterministic: bool, side: int, tolerance: float
) -> None:
    """A cold image under questions that are refused, then under good ones, again, and other images in between.

    All answers are those of a decider that never read anything else. The pictures differ in ``side`` squared pixels.
    """

    def asking(*images: str) -> dict[str, Any]:
        return {"state": TEXT * 40, "questions": QUESTIONS, "images": list(images)}

    first, second = png(0), png(side)
    fresh: dict[tuple[str, ...], dict[str, float]] = {}
    for images in ((), (first,), (second,), (second, first)):
        with load(deterministic=deterministic) as decider:
            fresh[images] = numbers(decider.systemone(asking(*images))["answers"])
    apart = [abs(a["late"] - b["late"]) for a in fresh.values() for b in fresh.values() if a is not b]
    assert min(apart) > 2 * tolerance

    refused = [
        {"q": {"type": "score", "criteria": ["x"] * 11}},  # by the schema, before the image is looked at
        {"": {"type": "noul"}},  # by the prompt, when the image is decoded already
        {"q": {"type": "noul", "instructions": "word " * 20_000}},  # by its length
    ]
    with httpx.Client(base_url=serving(load(deterministic=deterministic)).url, timeout=60) as client:
        for questions in refused:
            reply = client.post("/v1/systemone", json={**asking(first), "questions": questions})
            assert reply.status_code in (400, 422)
        cached = []
        for images in [(first,), (first,), (second,), (first,), (), (second, first), (second,)]:
            reply = client.post("/v1/systemone", json=asking(*images)).json()
            assert numbers(reply["answers"]) == pytest.approx(fresh[images], abs=tolerance)
            cached.append(reply["usage"]["input_tokens_details"]["cached_tokens"])
    assert [tokens > 0 for tokens in cached] == [False, True, False, True, False, False, True]
