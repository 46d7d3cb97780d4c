"""Pictures before a Gemma 3 chat model: ids and answers against transformers' own processor and model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from gemma3_release import gemma3_release
from gemma3_tiny import TOKENS
from PIL import Image
from seen_question import AS_VLLM, ASKED, STATE, body, picture
from transformers import AutoProcessor, Gemma3ForConditionalGeneration

import quaver
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRelease, BadRequest
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.prompts.tokenizer import PromptTokenizer

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gemma3_release(tmp_path_factory.mktemp("releases") / "tiny-gemma3")


@pytest.fixture(scope="module")
def decider(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder), dtype="float32") as decider:
        yield decider


@pytest.fixture(scope="module")
def as_vllm(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder), dtype="float32", prompt_style="vllm") as decider:
        yield decider


def answer(decider: Decider[Any], asked: dict[str, Any]) -> list[float]:
    return list(decider.systemone(asked)["answers"]["what"]["probabilities"].values())


def chat(folder: Path, images: Sequence[Image.Image], text: str) -> Any:
    """The inputs of the model for a whole turn, by transformers' own processor."""
    parts = [{"type": "image", "image": image} for image in images] + [{"type": "text", "text": text}]
    return processor(folder).apply_chat_template(
        [{"role": "user", "content": parts}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


@cache
def processor(folder: Path) -> Any:
    return AutoProcessor.from_pretrained(folder)


def own(folder: Path, images: Sequence[Image.Image], text: str) -> tuple[list[int], torch.Tensor]:
    """The ids of a whole turn and the probabilities of the next token, by transformers alone."""
    inputs = chat(folder, images, text)
    model = Gemma3ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model.eval()(**inputs).logits[0, -1]
    return inputs["input_ids"][0].tolist(), logits.double().softmax(-1)


def ways(folder: Path) -> list[list[int]]:
    """The tokens of each label, with and without a space before it."""
    tokens = PromptTokenizer(folder / "tokenizer.json")
    rows = [tokens.encode([label, f" {label}"], "reference") for label in "ABC"]
    return [sorted({row[0] for row in of_label if len(row) == 1}) for of_label in rows]


@pytest.mark.parametrize("images", [[], [picture(1)], [picture(1), picture(2, 9, 200)]], ids=len)
def test_answers_are_the_models_own_next_token(decider: Decider[Any], folder: Path, images: list[Image.Image]) -> None:
    ids, whole = own(folder, images, ASKED)
    assert decider.encode(body(images)).ids == ids
    held = torch.tensor([float(whole[way].sum()) for way in ways(folder)], dtype=torch.float64)
    reply = decider.systemone(body(images))
    assert answer(decider, body(images)) == pytest.approx((held / held.sum()).tolist(), abs=TOLERANCE)
    assert reply["x_label_mass"]["what"] == pytest.approx(float(held.sum()), rel=1e-3)
    assert reply["usage"]["input_tokens"] == len(ids)


def test_pictures_and_their_order_change_the_answer(decider: Decider[Any]) -> None:
    shown = [[], [picture(1)], [picture(2)], [picture(1), picture(2)], [picture(2), picture(1)]]
    answers = [answer(decider, body(images)) for images in shown]
    for number, one in enumerate(answers):
        for other in answers[:number]:
            assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 100 * TOLERANCE


def test_the_style_of_vllm(folder: Path, as_vllm: Decider[Any]) -> None:
    ids, whole = own(folder, [picture(1)], AS_VLLM)
    held = [float(whole[PromptTokenizer(folder / "tokenizer.json").fixed(label)[0]]) for label in "ABC"]
    assert as_vllm.encode(body([picture(1)])).ids == ids
    expected = [value / sum(held) for value in held]
    assert answer(as_vllm, body([picture(1)])) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("state", ["", "\n\nbegins with lines", "  two spaces", "Ends in lines\n\n"])
def test_the_style_of_vllm_is_the_whole_chat(folder: Path, as_vllm: Decider[Any], state: str) -> None:
    for images in ([picture(1)], [picture(1), picture(2)]):
        ids = chat(folder, images, AS_VLLM.replace(STATE, state))["input_ids"][0].tolist()
        assert as_vllm.encode(body(images, state)).ids == ids


def test_a_picture_is_known_by_its_pixels_and_not_looked_at_twice(decider: Decider[Any]) -> None:
    state = f"{STATE}, which is why we write to you today"
    fresh = {seed: answer(decider, body([picture(seed)], state, cache_salt=f"{seed}")) for seed in (3, 4)}
    assert answer(decider, body([picture(3)], state)) == pytest.approx(fresh[3], abs=TOLERANCE)
    again, other = (decider.systemone(body([picture(seed)], state)) for seed in (3, 4))
    cached = [reply["usage"]["input_tokens_details"]["cached_tokens"] for reply in (again, other)]
    # The state with its picture; of the other picture only what stands before it.
    assert cached[0] > TOKENS + 10 > 10 > cached[1]
    for reply, seed in ((again, 3), (other, 4)):
        assert list(reply["answers"]["what"]["probabilities"].values()) == pytest.approx(fresh[seed], abs=TOLERANCE)


def test_a_placeholder_in_a_text_is_text(decider: Decider[Any], folder: Path) -> None:
    tokens = PromptTokenizer(folder / "tokenizer.json")
    for written in ("<start_of_image>", "<image_soft_token>"):
        [token] = tokens.fixed(written)
        ids = decider.encode(body([picture(1)], f"see {written} here")).ids
        assert ids.count(token) == decider.encode(body([picture(1)])).ids.count(token)


def test_a_placeholder_that_is_honoured_is_refused(folder: Path) -> None:
    with (
        quaver.load(str(folder), special_tokens="reference") as decider,
        pytest.raises(BadRequest, match="holds 1 <image_soft_token> tokens where its media give 0"),
    ):
        decider.systemone(body([], "see <image_soft_token> here"))


def test_pictures_that_fill_a_prompt_are_refused_by_name(folder: Path) -> None:
    with (
        quaver.load(str(folder), max_length=90) as decider,
        pytest.raises(BadMedia, match="images item 4: with it the media have over 90 tokens"),
    ):
        decider.systemone(body([picture(seed) for seed in range(6)]))


def test_a_release_that_scans_pictures_is_read_without(folder: Path, decider: Decider[Any], tmp_path: Path) -> None:
    """Pan and scan is off unless a caller of the processor turns it on, whatever the files say."""
    scanning = tmp_path / "scanning"
    scanning.mkdir()
    for file in folder.iterdir():
        (scanning / file.name).symlink_to(file)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (scanning / "preprocessor_config.json").unlink()
    (scanning / "preprocessor_config.json").write_text(
        json.dumps({**settings, "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8})
    )
    wide = body([picture(1, 200, 60)])
    with quaver.load(str(scanning), dtype="float32") as other:
        assert answer(other, wide) == pytest.approx(answer(decider, wide), abs=TOLERANCE)


def test_without_the_processors_files_text_is_answered(tmp_path: Path, decider: Decider[Any]) -> None:
    folder = gemma3_release(tmp_path / "blind", processor=False)
    with quaver.load(str(folder), dtype="float32") as blind:
        assert answer(blind, body([])) == pytest.approx(answer(decider, body([])), abs=TOLERANCE)
        with pytest.raises(BadMedia, match="because its folder has neither processor_config"):
            blind.systemone(body([picture(1)]))


def test_it_has_no_budgets_and_no_knobs(decider: Decider[Any], folder: Path) -> None:
    with pytest.raises(BadRequest, match="has no image budgets"):
        decider.systemone(body([picture(1)], mm_processor_kwargs={"max_soft_tokens": 70}))
    with pytest.raises(BadRequest, match="is no Gemma 4 and has no sliding_window"):
        quaver.load(str(folder), knobs=Gemma4Knobs(sliding_window=4))


def test_weights_of_the_tower_that_are_missing(tmp_path: Path) -> None:
    broken = gemma3_release(tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    config["vision_config"]["num_hidden_layers"] += 1
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadRelease, match=r"missing tensors: model\.vision_tower\.encoder\.layers\.2\..* and \d+ more"):
        quaver.load(str(broken))
