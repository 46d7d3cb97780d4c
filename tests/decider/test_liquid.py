"""Liquid's d1 behind ``quaver.load``, beside transformers on a prompt written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from liquid_tiny import liquid_release
from PIL import Image
from transformers import AutoProcessor, Lfm2VlForConditionalGeneration

import quaver
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRelease, BadRequest, TooLong

STATE = "The parcel came late and the box was torn."
QUESTIONS: dict[str, dict[str, Any]] = {
    "late": {"type": "noul", "instructions": "Is it late?", "criteria": {"true": "it is", "false": "it is not"}},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"a_parcel": None, "m": "a letter"}},
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
}
#: What is asked, the options' ids, and the ways in which a reply may write each.
ASKED: dict[str, tuple[str, list[str], list[list[str]]]] = {
    "late": (
        "Is it late?\nYes: it is\nNo: it is not\n\nReply with yes or no only.",
        ["true", "false"],
        [["yes", "Yes", "YES"], ["no", "No", "NO"]],
    ),
    "what": (
        "What is it?\n\nOptions:\nA a parcel\nB a letter\n\nReply with the option code only.",
        ["a_parcel", "m"],
        [["A", " A"], ["B", " B"]],
    ),
    "heat": (
        "How angry?\n\n0 calm\n1 annoyed\n2 furious\n\nReply with a single digit 0-2 only.",
        ["0", "1", "2"],
        [["0"], ["1"], ["2"]],
    ),
}
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return liquid_release(tmp_path_factory.mktemp("releases") / "d1-tiny")


@pytest.fixture(scope="module")
def decider(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder), dtype="float32") as decider:
        yield decider


def picture(seed: int, width: int, height: int) -> Image.Image:
    squares = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(squares).resize((width, height), Image.Resampling.NEAREST)


def own(
    folder: Path, asked: str, images: Sequence[Image.Image] = (), state: str = f"{STATE}\n\n\nQUESTION:\n"
) -> tuple[Any, list[int], torch.Tensor]:
    """A processor, the ids of a prompt and the probabilities of the next token, by transformers alone."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    text = (
        f"<|startoftext|><|im_start|>user\n{'<image>' * len(images)}{state}{asked}<|im_end|>\n<|im_start|>assistant\n"
    )
    inputs = processor(text=[text], images=list(images) or None, return_tensors="pt")
    model: Any = Lfm2VlForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model.eval()(**inputs).logits[0, -1]
    return processor.tokenizer, inputs["input_ids"][0].tolist(), logits.double().softmax(-1)


def ways_of(tokenizer: Any, ways: list[list[str]]) -> list[list[int]]:
    """The tokens of those that are one."""
    ids = [[tokenizer.encode(way, add_special_tokens=False) for way in row] for row in ways]
    return [sorted({way[0] for way in row if len(way) == 1}) for row in ids]


def found(reply: dict[str, Any], name: str) -> dict[str, float]:
    answer = reply["answers"][name]
    return answer.get("probabilities") or {"true": answer["noul"], "false": 1 - answer["noul"]}


def body(name: str, **more: Any) -> dict[str, Any]:
    return {"state": STATE, "questions": {name: QUESTIONS[name]}, **more}


@pytest.mark.parametrize("name", QUESTIONS)
def test_of_a_labels_ways_the_likeliest_counts(decider: Decider[Any], folder: Path, name: str) -> None:
    asked, options, ways = ASKED[name]
    tokenizer, ids, whole = own(folder, asked)
    assert decider.encode(body(name)).ids == ids
    rows = ways_of(tokenizer, ways)
    best = [max(float(whole[token]) for token in row) for row in rows]
    reply = decider.systemone(body(name))
    expected = {option: value / sum(best) for option, value in zip(options, best, strict=True)}
    assert found(reply, name) == pytest.approx(expected, abs=TOLERANCE)
    mass = math.fsum(float(whole[token]) for row in rows for token in row)
    assert reply["x_label_mass"][name] == pytest.approx(mass, rel=1e-3)
    assert reply["x_argmax_is_label"][name] is any(int(whole.argmax()) in row for row in rows)


@pytest.mark.parametrize(
    "sizes", [[(100, 80)], [(300, 90), (40, 70)], [(1500, 1300)]], ids=["one", "two, one in tiles", "over a megapixel"]
)
def test_pictures_stand_before_the_state(decider: Decider[Any], folder: Path, sizes: list[tuple[int, int]]) -> None:
    images = [picture(number, *size) for number, size in enumerate(sizes)]
    # Of at most 1,048,576 pixels: 1500 and 1300 times 0.7333.
    shown = [image.resize((1099, 953), Image.Resampling.BICUBIC) if image.width == 1500 else image for image in images]
    asked, options, ways = ASKED["heat"]
    tokenizer, ids, whole = own(folder, asked, shown)
    assert decider.encode(body("heat", images=images)).ids == ids
    best = [float(whole[row[0]]) for row in ways_of(tokenizer, ways)]
    expected = {option: value / sum(best) for option, value in zip(options, best, strict=True)}
    assert found(decider.systemone(body("heat", images=images)), "heat") == pytest.approx(expected, abs=TOLERANCE)


def test_a_null_state_leaves_the_pictures_alone(decider: Decider[Any], folder: Path) -> None:
    asked, _, _ = ASKED["late"]
    _, ids, _ = own(folder, asked, [picture(1, 100, 80)], state="")
    assert decider.encode(body("late", images=[picture(1, 100, 80)], state=None)).ids == ids


def test_a_state_and_its_picture_are_read_once(decider: Decider[Any]) -> None:
    asked = {"state": f"{STATE} " * 9, "questions": QUESTIONS, "images": [picture(2, 300, 90)]}
    fresh = decider.systemone({**asked, "cache_salt": "another"})
    first, second = decider.systemone(asked), decider.systemone(asked)
    cached = [reply["usage"]["input_tokens_details"]["cached_tokens"] for reply in (first, second)]
    assert 0 < cached[0] < cached[1] < second["usage"]["input_tokens"]
    other = decider.systemone({**asked, "images": [picture(3, 300, 90)]})
    assert other["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    for name in QUESTIONS:
        assert found(first, name) == pytest.approx(found(fresh, name), abs=TOLERANCE)
        assert found(second, name) == pytest.approx(found(fresh, name), abs=TOLERANCE)
    assert any(found(other, name) != pytest.approx(found(fresh, name), abs=100 * TOLERANCE) for name in QUESTIONS)


def test_what_is_not_asked_of_it(decider: Decider[Any]) -> None:
    with pytest.raises(BadRequest, match="order of the request"):
        decider.systemone(body("what", x_option_orders=2))
    with pytest.raises(BadMedia, match="cannot watch videos; it reads text, images"):
        decider.systemone(body("what", videos=["data:video/mp4;base64,AAAA"]))
    with pytest.raises(TooLong, match="never cut"):
        decider.systemone(body("late", state="word " * 5000))


def test_a_model_without_the_mark_is_a_chat_model(tmp_path: Path) -> None:
    folder = liquid_release(tmp_path / "lfm2", published=False)
    with quaver.load(str(folder), dtype="float32") as decider:
        ids = decider.encode(body("what", images=[picture(1, 100, 80)])).ids
        reply = decider.systemone(body("what", images=[picture(1, 100, 80)], x_option_orders=2))
    asked = "\n\n---\nQuestion: What is it?\nA. a_parcel\nB. m: a letter\nReply with the letter only."
    _, expected, _ = own(folder, asked, [picture(1, 100, 80)], STATE)
    # Here the state is tokenised apart from what follows it.
    assert len(ids) - len(expected) in (0, 1) and ids[:20] == expected[:20]
    assert reply["x_order_spread"]["what"] > 0


def test_d1_omni_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "d1_omni"}))
    with pytest.raises(BadRelease, match="a head of its own, which is not supported"):
        quaver.load(str(tmp_path))
