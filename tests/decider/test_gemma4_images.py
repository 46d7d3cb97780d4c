"""Pictures before a Gemma 4 chat model: answers against transformers, budgets, what is shared, what is said of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chat_models import GEMMA4_TOKENS, GEMMA4_WITH_MEDIA
from gemma4_release import gemma4_release
from PIL import Image
from tokenizers import Tokenizer
from transformers import Gemma4ForConditionalGeneration, Gemma4ImageProcessor
from transformers.utils.chat_template_utils import render_jinja_template
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRequest
from quaver.models.gemma4_knobs import Gemma4Knobs

STATE = "The label on this parcel."
QUESTIONS = {
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"z": "a parcel", "a": None, "m": "mail"}},
    "heat": {"type": "score", "instructions": "How full?", "criteria": ["empty", "half", "full"]},
}
WRITTEN = "\n\n---\nQuestion: What is it?\nA. a\nB. m: mail\nC. z: a parcel\nReply with the letter only."


def photo(seed: int, width: int = 48, height: int = 40) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def body(*images: str, state: str = STATE, **more: Any) -> dict[str, Any]:
    return {"state": state, "questions": QUESTIONS, "images": list(images), **more}


def budget(tokens: int) -> dict[str, Any]:
    return {"mm_processor_kwargs": {"max_soft_tokens": tokens}}


def read_anew(reply: dict[str, Any]) -> int:
    usage: dict[str, Any] = reply["usage"]
    return int(usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"])


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gemma4_release(tmp_path_factory.mktemp("releases") / "tiny-31B", "31B")


@pytest.fixture(scope="module")
def unified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gemma4_release(tmp_path_factory.mktemp("releases") / "tiny-12B")


@pytest.fixture(scope="module")
def decider(tower: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(tower), dtype="float32") as decider:
        yield decider


def test_answers_are_those_of_transformers(decider: Decider[Any], tower: Path) -> None:
    """The chat as transformers renders it, the pixels as its processor prepares them, its own forward."""
    shown = [photo(1), photo(2, 30, 60)]
    parts = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": STATE + WRITTEN}]
    [chat], _ = render_jinja_template(
        [[{"role": "user", "content": parts}]],
        chat_template=GEMMA4_WITH_MEDIA,
        add_generation_prompt=True,
        **GEMMA4_TOKENS,
    )
    files = [Image.open(BytesIO(base64.b64decode(url.partition(",")[2]))) for url in shown]
    prepared = Gemma4ImageProcessor.from_pretrained(tower)(files, return_tensors="pt")
    counts = prepared.pop("num_soft_tokens_per_image").tolist()
    for count in counts:
        chat = chat.replace("<|image|>", "<|image>" + "<image>" * count + "<image|>", 1)
    tokens = Tokenizer.from_file(str(tower / "tokenizer.json"))
    ids = torch.tensor([tokens.encode(chat.replace("<image>", "<|image|>"), add_special_tokens=False).ids])
    kinds = (ids == tokens.token_to_id("<|image|>")).long()
    model = Gemma4ForConditionalGeneration.from_pretrained(tower, dtype=torch.float32)
    with torch.inference_mode():
        own = model(input_ids=ids, mm_token_type_ids=kinds, **prepared).logits[0, -1].double().softmax(-1)
    held = []
    for label in "ABC":
        ways = {tuple(tokens.encode(way, add_special_tokens=False).ids) for way in (label, f" {label}")}
        held.append(sum(float(own[way[0]]) for way in ways if len(way) == 1))
    reply = decider.systemone(body(*shown))
    found = reply["answers"]["what"]["probabilities"]
    assert [found[name] for name in "amz"] == pytest.approx([p / sum(held) for p in held], abs=2e-5)
    assert reply["x_label_mass"]["what"] == pytest.approx(sum(held), rel=1e-3)
    assert decider.encode(body(*shown)).ids[: ids.shape[1]] == ids[0].tolist()
    [text] = {decider.systemone(body())["answers"]["what"]["probabilities"]["a"]}
    assert abs(text - found["a"]) > 1e-4


def test_both_dialects_and_every_slot_are_one_answer(decider: Decider[Any]) -> None:
    listed = decider.systemone(body(photo(1)))["answers"]["what"]["probabilities"]
    parts = [{"type": "image_url", "image_url": {"url": photo(1)}}, {"type": "text", "text": STATE}]
    lifted = decider.systemone({"state": parts, "questions": QUESTIONS})["answers"]["what"]["probabilities"]
    assert lifted == pytest.approx(listed, abs=1e-6)
    content = [{"type": "input_image", "image_url": photo(1)}, {"type": "input_text", "text": STATE}]
    asked = {
        "input": [{"role": "user", "content": content}],
        "questions": [
            {
                "type": "choice",
                "name": "what",
                "instructions": "What is it?",
                "choices": [
                    {"value": "z", "description": "a parcel"},
                    {"value": "a"},
                    {"value": "m", "description": "mail"},
                ],
            }
        ],
        **budget(70),
        "x_config": True,
    }
    reply = decider.decisions(asked)
    found = {entry["value"]: entry["probability"] for entry in reply["answers"][0]["probabilities"]}
    assert found == pytest.approx(listed, abs=1e-6)
    assert reply["x_config"]["image_budget"] == 70


def test_questions_share_a_picture_and_only_the_same_one_is_known(decider: Decider[Any]) -> None:
    state = "Something that was not asked about before. " * 3
    cold = decider.systemone(body(photo(5), state=state))
    again = decider.systemone(body(photo(5), state=state))
    other = decider.systemone(body(photo(6), state=state))
    finer = decider.systemone(body(photo(5), state=state, **budget(140)))
    assert read_anew(cold) < 0.7 * cold["usage"]["input_tokens"]  # two questions, one state with its picture
    assert read_anew(again) < read_anew(cold) / 2
    # Another picture of the same size, or the same one under another budget, is another state from its begin on.
    assert read_anew(other) == read_anew(cold) == other["usage"]["input_tokens"] - cached(cold)
    assert read_anew(finer) > read_anew(cold)
    assert again["answers"]["heat"]["probabilities"] == pytest.approx(
        cold["answers"]["heat"]["probabilities"], abs=2e-5
    )
    assert other["answers"] != cold["answers"]


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["input_tokens_details"]["cached_tokens"])


def test_the_budget_of_a_request_and_of_the_server(decider: Decider[Any], tower: Path) -> None:
    # 48 x 40 pixels: 9 x 7 tokens of at most 70, 12 x 10 of at most 140, 41 x 34 would be over 1120.
    plain, finer = decider.systemone(body(photo(1))), decider.systemone(body(photo(1), x_config=True, **budget(140)))
    assert finer["usage"]["input_tokens"] - plain["usage"]["input_tokens"] == 2 * (12 * 10 - 9 * 7)
    assert "x_config" not in plain and finer["x_config"]["image_budget"] == 140
    assert decider.config["image_budget"] == 70
    with quaver.load(str(tower), dtype="float32", knobs=Gemma4Knobs(image_budget=140)) as served:
        assert served.config["image_budget"] == 140
        reply = served.systemone(body(photo(1)))
    for name, answer in finer["answers"].items():
        assert reply["answers"][name]["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)


@pytest.mark.parametrize("tokens", [0, 71, 1121, -70])
def test_other_budgets_are_refused_with_those_allowed(decider: Decider[Any], tokens: int) -> None:
    with pytest.raises(BadRequest, match=r"max_soft_tokens: an image can have 70, 140, 280, 560, 1120 tokens at most"):
        decider.systemone(body(photo(1), **budget(tokens)))


@pytest.mark.parametrize(
    "wish", [{"max_soft_tokens": "70"}, {"max_soft_tokens": True}, {"max_soft_tokens": 70, "do_resize": False}, {}, 70]
)
def test_what_is_no_budget(decider: Decider[Any], wish: object) -> None:
    with pytest.raises(BadRequest, match="mm_processor_kwargs"):
        decider.systemone(body(photo(1), mm_processor_kwargs=wish))


def test_models_without_budgets_and_knobs() -> None:
    with quaver.load("embedded") as embedded:
        with pytest.raises(BadRequest, match="has no image budgets; leave it out"):
            embedded.systemone({"state": "s", "questions": QUESTIONS, **budget(70)})
        assert embedded.systemone({"state": "s", "questions": QUESTIONS, "x_config": True})["x_config"] == {}
    with pytest.raises(BadRequest, match="is no Gemma 4 and has no image_budget, sliding_window; leave it out"):
        quaver.load("embedded", knobs=Gemma4Knobs(image_budget=70, sliding_window=9))


def test_corrections_and_the_other_style_see_too(decider: Decider[Any], tower: Path) -> None:
    plain = decider.systemone(body(photo(1)))
    corrected = decider.systemone(body(photo(1), x_prior_correction=True, x_option_orders=2))
    assert corrected["answers"] != plain["answers"] and set(corrected["x_order_spread"]) == set(QUESTIONS)
    again = decider.systemone(body(photo(9), x_prior_correction=True, x_option_orders=2))
    assert again["answers"] != corrected["answers"]
    with quaver.load(str(tower), dtype="float32", prompt_style="vllm") as other:
        seen, blind = other.systemone(body(photo(1))), other.systemone(body())
    assert seen["answers"] != blind["answers"]


def test_too_many_tokens_of_pictures_name_the_one(tower: Path) -> None:
    with quaver.load(str(tower), max_length=200) as short:
        with pytest.raises(BadMedia, match="images item 2: with it the media have over 200 tokens") as refused:
            short.systemone(body(photo(1), photo(2), photo(3)))
        assert refused.value.where == ("images", 2)
        with pytest.raises(BadMedia, match="cannot watch videos; it reads text, images"):
            short.systemone(body(videos=["data:video/mp4;base64,AAAA"]))


def test_a_model_that_cannot_be_shown_anything_says_why(tmp_path: Path) -> None:
    folder = gemma4_release(tmp_path / "tiny", processor=False)
    with quaver.load(str(folder)) as blind:
        assert blind.systemone(body())["answers"]
        with pytest.raises(BadMedia, match="cannot see images because its folder has neither"):
            blind.systemone(body(photo(1)))
    (folder / "preprocessor_config.json").write_text(json.dumps({"max_soft_tokens": 71}))
    with quaver.load(str(folder)) as blind, pytest.raises(BadMedia, match=r"cannot see images because .*71"):
        blind.systemone(body(photo(1)))


def test_the_knobs_in_force_are_told(unified: Path) -> None:
    with quaver.load(str(unified)) as released:
        assert released.config == {
            "bidirectional": True,
            "bidirectional_full_layers": False,
            "fp32_layernorm_statistics": False,
            "fp32_vision_embedder": False,
            "image_budget": 70,
            "sliding_window": 16,
        }
    knobs = Gemma4Knobs(bidirectional=False, fp32_layernorm_statistics=True, sliding_window=9, image_budget=140)
    with quaver.load(str(unified), knobs=knobs) as turned:
        assert turned.config == knobs.facts()
        assert turned.systemone(body(photo(1), x_config=True, **budget(70)))["x_config"] == knobs.facts() | {
            "image_budget": 70
        }


def test_a_knob_changes_the_answer(unified: Path) -> None:
    answers = []
    for knobs in (Gemma4Knobs(), Gemma4Knobs(bidirectional_full_layers=True), Gemma4Knobs(bidirectional=False)):
        with quaver.load(str(unified), dtype="float32", knobs=knobs) as decider:
            answers.append(decider.systemone(body(photo(1)))["answers"]["what"]["probabilities"]["a"])
    assert len(set(answers)) == 3


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [([], "bidirectional"), (["--bidirectional-full-layers"], "bidirectional"), (["--no-bidirectional"], "causal")],
)
@pytest.mark.parametrize("shape", ["12B", "31B"])
def test_the_mask_is_seen_from_inside(unified: Path, tower: Path, shape: str, flags: list[str], verdict: str) -> None:
    folder = {"12B": unified, "31B": tower}[shape]
    run = CliRunner().invoke(app, ["probe", "mask", "--model", str(folder), "--dtype", "float32", "--json", *flags])
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert (said["verdict"], said["noise"], said["tokens"], said["compared"]) == (verdict, 0.0, 64, 16)
    under = said["change_under"]
    assert under["causal"] == 0.0 < under["bidirectional"] != under["bidirectional in all layers"]
    own = {"": "bidirectional", "--bidirectional-full-layers": "bidirectional in all layers"}
    assert said["change"] == under[own.get("".join(flags), "causal")]
    assert said["x_config"]["bidirectional"] == (verdict == "bidirectional")


def test_a_release_that_reads_images_causally_has_no_mask_to_choose(tmp_path: Path) -> None:
    folder = str(gemma4_release(tmp_path / "tiny-E2B", "E2B"))
    run = CliRunner().invoke(
        app, ["probe", "mask", "--model", folder, "--dtype", "float32", "--expect", "causal", "--json"]
    )
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert (said["change"], said["change_under"], said["x_config"]["bidirectional"]) == (0.0, {}, False)
    with pytest.raises(BadRequest, match="bidirectional: this release reads images causally"):
        quaver.load(folder, knobs=Gemma4Knobs(bidirectional=False))


def test_the_command_line_asks_with_a_picture(tower: Path, tmp_path: Path, decider: Decider[Any]) -> None:
    file = tmp_path / "photo.png"
    file.write_bytes(base64.b64decode(photo(1).partition(",")[2]))
    question = ["--choice", "What is it? = a | m: mail | z: a parcel", "--json"]
    model = ["--model", str(tower), "--dtype", "float32", "--image-budget", "140"]
    run = CliRunner().invoke(app, ["ask", STATE, "--image", str(file), *question, *model])
    assert run.exit_code == 0, run.output
    [answer] = json.loads(run.stdout)["answers"].values()
    expected = decider.systemone(body(photo(1), **budget(140)))["answers"]["what"]["probabilities"]
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)


def test_only_a_gemma_4_that_sees_is_looked_into() -> None:
    run = CliRunner().invoke(app, ["probe", "mask", "--model", "embedded"])
    assert isinstance(run.exception, BadRequest) and "no Gemma 4" in str(run.exception)
