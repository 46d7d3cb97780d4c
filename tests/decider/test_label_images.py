"""Chat models that see, read by their labels: beside transformers' own processor and model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import QWEN3_5, QWEN3_5_WITH_MEDIA
from PIL import Image
from seeing_release import CLASSES, seeing_release
from seen_question import AS_VLLM, ASKED, QUESTION, STATE, body, picture
from transformers import AutoProcessor

import quaver
from quaver.decider import Decider
from quaver.decider.label import limits
from quaver.errors import BadMedia
from quaver.models.release import inspect
from quaver.prompts.tokenizer import PromptTokenizer

#: What the paths of a state through the model may differ by.
TOLERANCE = 2e-5


@pytest.fixture(scope="module", params=["qwen3_5", "qwen3_5_moe"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_release(tmp_path_factory.mktemp("releases") / f"tiny-{request.param}", request.param)


@pytest.fixture(scope="module")
def decider(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder), dtype="float32") as decider:
        yield decider


def answer(decider: Decider[Any], asked: dict[str, Any]) -> list[float]:
    return list(decider.systemone(asked)["answers"]["what"]["probabilities"].values())


def own(folder: Path, images: Sequence[Image.Image], text: str) -> tuple[list[int], torch.Tensor]:
    """The ids of a whole turn and the probabilities of the next token, by transformers alone."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    parts = [{"type": "image"}] * len(images) + [{"type": "text", "text": text}]
    template = (folder / "chat_template.jinja").read_text()
    chat = processor.apply_chat_template(
        [{"role": "user", "content": parts}],
        chat_template=template,
        add_generation_prompt=True,
        enable_thinking=False,
        tokenize=False,
    )
    inputs = processor(text=[chat], images=list(images) or None, return_tensors="pt")
    model = CLASSES[folder.name.removeprefix("tiny-")].from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model.eval()(**inputs).logits[0, -1]
    return inputs["input_ids"][0].tolist(), logits.double().softmax(-1)


@pytest.mark.parametrize("images", [[], [picture(1)], [picture(1), picture(2, 90, 500)]], ids=len)
def test_answers_are_the_models_own_next_token(decider: Decider[Any], folder: Path, images: list[Image.Image]) -> None:
    ids, whole = own(folder, images, ASKED)
    assert decider.encode(body(images)).ids == ids
    tokens = PromptTokenizer(folder / "tokenizer.json")
    ways = [[row[0] for row in tokens.encode([label, f" {label}"], "reference") if len(row) == 1] for label in "ABC"]
    held = torch.tensor([float(whole[sorted(set(way))].sum()) for way in ways], dtype=torch.float64)
    reply = decider.systemone(body(images))
    assert answer(decider, body(images)) == pytest.approx((held / held.sum()).tolist(), abs=TOLERANCE)
    assert reply["x_label_mass"]["what"] == pytest.approx(float(held.sum()), rel=1e-3)
    assert reply["x_argmax_is_label"]["what"] is any(int(whole.argmax()) in way for way in ways)
    assert reply["usage"]["input_tokens"] == len(ids)


def test_the_style_of_vllm(folder: Path) -> None:
    ids, whole = own(folder, [picture(1)], AS_VLLM)
    held = [float(whole[PromptTokenizer(folder / "tokenizer.json").fixed(label)[0]]) for label in "ABC"]
    with quaver.load(str(folder), dtype="float32", prompt_style="vllm") as decider:
        assert decider.encode(body([picture(1)])).ids == ids
        expected = [value / sum(held) for value in held]
        assert answer(decider, body([picture(1)])) == pytest.approx(expected, abs=TOLERANCE)


def test_a_picture_is_known_by_its_pixels_and_not_looked_at_twice(decider: Decider[Any]) -> None:
    state = f"{STATE}, which is why we write to you today"
    first = body([picture(3)], state)
    fresh = {seed: answer(decider, body([picture(seed)], state, cache_salt=f"{seed}")) for seed in (3, 4)}
    assert max(abs(a - b) for a, b in zip(fresh[3], fresh[4], strict=True)) > 100 * TOLERANCE
    assert answer(decider, first) == pytest.approx(fresh[3], abs=TOLERANCE)
    again, other = (decider.systemone(body([picture(seed)], state)) for seed in (3, 4))
    cached = [reply["usage"]["input_tokens_details"]["cached_tokens"] for reply in (again, other)]
    # All but the end of the state; of the other picture only what stands before it.
    assert cached[0] > again["usage"]["input_tokens"] / 2 and cached[1] < 10
    for reply, seed in ((again, 3), (other, 4)):
        assert list(reply["answers"]["what"]["probabilities"].values()) == pytest.approx(fresh[seed], abs=TOLERANCE)


def test_orders_and_priors_of_a_request_with_pictures(decider: Decider[Any]) -> None:
    plain = decider.systemone(body([picture(1)]))
    turned = decider.systemone(body([picture(1)], x_option_orders=3))
    assert 0 < turned["x_order_spread"]["what"] < 1
    text = decider.systemone({"state": "N/A", "questions": {"what": QUESTION}})["answers"]["what"]["probabilities"]
    corrected = answer(decider, body([picture(1)], x_prior_correction=True))
    # The prior is that of a state that says nothing and shows nothing.
    shares = [p / text[name] for name, p in plain["answers"]["what"]["probabilities"].items()]
    assert corrected == pytest.approx([share / sum(shares) for share in shares], abs=1e-3)


def test_pictures_that_fill_a_prompt_are_refused_by_name(folder: Path) -> None:
    with quaver.load(str(folder), dtype="float32", max_length=200) as decider:
        asked = body([picture(1), picture(2), picture(3)])
        with pytest.raises(BadMedia, match="images item 2: with it the media have over 200 tokens"):
            decider.systemone(asked)


def test_a_placeholder_in_a_text_is_text(decider: Decider[Any], folder: Path) -> None:
    odd = body([picture(1)], "<|image_pad|> <|vision_end|>")
    pads = PromptTokenizer(folder / "tokenizer.json").fixed("<|image_pad|>")[0]
    assert decider.encode(odd).ids.count(pads) == decider.encode(body([picture(1)])).ids.count(pads)
    assert sum(answer(decider, odd)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("template", "files", "why"),
    [
        (QWEN3_5_WITH_MEDIA, False, "because its folder has neither processor_config.json nor"),
        (QWEN3_5, True, "because its chat template has no place for them"),
    ],
)
def test_a_model_whose_pictures_are_not_read_answers_text_and_says_why(
    tmp_path: Path, template: str, files: bool, why: str
) -> None:
    folder = seeing_release(tmp_path / "blind", template=template)
    if not files:
        (folder / "processor_config.json").unlink()
    with quaver.load(str(folder), dtype="float32") as decider:
        assert sum(answer(decider, body([]))) == pytest.approx(1)
        with pytest.raises(BadMedia, match=f"images item 0: blind@.* cannot see images {why}.*; it reads text"):
            decider.systemone(body([picture(1)]))


def test_families_whose_pictures_are_not_read_are_named(tmp_path: Path) -> None:
    folder = seeing_release(tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "qwen3_vl"}))
    known = limits(inspect(folder))
    assert (known.images, known.blind) == (False, "because images of qwen3_vl models are not read here")
