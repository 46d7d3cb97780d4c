"""Chat models behind ``quaver.load``: answers against transformers on the rendered chat, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import rendered_ids, tokenizer
from chat_release import chat_release
from transformers import AutoModelForCausalLM

import quaver
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRequest, TooLong

STATE = "The parcel came late and the box was torn."
QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "what": {
        "type": "choice",
        "instructions": "What is it?",
        "criteria": {"z": "a parcel", "a": None, "m": "a letter"},
    },
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
}
BODY = {"state": STATE, "questions": QUESTIONS}
DECISIONS = {
    "input": STATE,
    "questions": [{"type": "predicate", "instructions": "Is it late?", "name": "late"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_release(tmp_path_factory.mktemp("releases") / "tiny-chat")


@pytest.fixture(scope="module")
def decider(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder)) as decider:
        yield decider


def numbers(reply: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        name: answer.get("probabilities") or {"true": answer["noul"], "false": 1 - answer["noul"]}
        for name, answer in reply["answers"].items()
    }


def next_token(folder: Path, content: str) -> torch.Tensor:
    """The model's own probabilities after a user said ``content``, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(torch.tensor([rendered_ids("smollm2", content)])).logits[0, -1]
    return logits.double().softmax(-1)


@pytest.mark.parametrize(
    ("question", "written", "labels"),
    [
        ("what", "Question: What is it?\nA. a\nB. m: a letter\nC. z: a parcel\nReply with the letter only.", "ABC"),
        ("heat", "Question: How angry?\n0: calm\n1: annoyed\n2: furious\nReply with the number only.", "012"),
    ],
)
def test_answers_are_the_models_own_next_token(
    decider: Decider[Any], folder: Path, question: str, written: str, labels: str
) -> None:
    whole = next_token(folder, f"{STATE}\n\n---\n{written}")
    held = []
    for label in labels:
        ways = {tuple(ids) for ids in tokenizer("smollm2").encode([label, f" {label}"], "reference")}
        held.append(sum(float(whole[way[0]]) for way in ways if len(way) == 1))
    reply = decider.systemone(BODY)
    expected = [p / sum(held) for p in held]
    found = numbers(reply)[question]
    in_order = [found[name] for name in ("a", "m", "z")] if question == "what" else list(found.values())
    assert in_order == pytest.approx(expected, abs=2e-5)
    assert reply["x_label_mass"][question] == pytest.approx(sum(held), rel=1e-3)


def test_a_reply_says_that_labels_were_read(decider: Decider[Any]) -> None:
    reply = decider.systemone(BODY)
    assert reply["model"].startswith("tiny-chat@")
    assert reply["x_reading"] == "independent"
    assert list(reply["x_label_mass"]) == list(reply["x_argmax_is_label"]) == list(QUESTIONS)
    assert all(0 < mass < 1 for mass in reply["x_label_mass"].values())
    assert {"x_ties", "x_order_spread"}.isdisjoint(reply)
    assert "x_abstain" not in reply["answers"]["late"]


def test_the_strict_dialect_hears_of_labels_when_it_asks(decider: Decider[Any]) -> None:
    assert not any(name.startswith("x_") for name in decider.decisions(DECISIONS))
    reply = decider.decisions({**DECISIONS, "x_reading": "independent"})
    assert list(reply["x_label_mass"]) == ["late"]


def test_a_server_that_abstains_does_not_disturb_the_strict_dialect(folder: Path) -> None:
    with quaver.load(str(folder), min_label_mass=1.0) as strict:
        assert strict.systemone(BODY)["answers"]["late"]["x_abstain"] is True
        assert "x_abstain" not in strict.decisions(DECISIONS)["answers"][0]
        assert strict.decisions({**DECISIONS, "x_min_label_mass": 0.0})["answers"][0]["x_abstain"] is False


def test_little_label_mass_is_left_aside(decider: Decider[Any]) -> None:
    mass = decider.systemone(BODY)["x_label_mass"]
    least = sorted(mass.values())[1]
    reply = decider.systemone({**BODY, "x_min_label_mass": least})
    assert {name: answer["x_abstain"] for name, answer in reply["answers"].items()} == {
        name: value < least for name, value in mass.items()
    }


def test_labels_that_weigh_the_same_are_told(tmp_path: Path) -> None:
    """A model whose last layer is zero thinks the same of every token."""
    folder = chat_release(tmp_path / "even", tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.nn.init.zeros_(model.lm_head.weight)
    model.save_pretrained(folder)
    # In this style every label has one token, so they weigh exactly the same.
    with quaver.load(str(folder), prompt_style="vllm") as decider:
        reply = decider.systemone(BODY)
    assert reply["x_ties"] == {"late": ["true", "false"], "what": ["z", "a", "m"], "heat": ["0", "1", "2"]}


def test_questions_share_the_state(decider: Decider[Any]) -> None:
    asked = {**BODY, "state": "A state that nobody has read so far. " * 20}
    cold, warm = decider.systemone(asked), decider.systemone(asked)
    read = [
        reply["usage"]["input_tokens"] - reply["usage"]["input_tokens_details"]["cached_tokens"]
        for reply in (cold, warm)
    ]
    assert read[0] < cold["usage"]["input_tokens"] / 2
    assert read[1] < read[0] / 2
    assert numbers(warm) == {name: pytest.approx(p, abs=2e-5) for name, p in numbers(cold).items()}


def test_what_a_text_model_refuses(decider: Decider[Any]) -> None:
    with pytest.raises(BadMedia, match="cannot see images; it reads text"):
        decider.systemone({**BODY, "images": ["data:image/png;base64,AAAA"]})
    with pytest.raises(BadRequest, match='reading "joint"'):
        decider.systemone({**BODY, "x_reading": "joint"})
    with pytest.raises(TooLong):
        decider.systemone({**BODY, "state": "word " * 3000, "x_on_overflow": "refuse"})
    assert decider.systemone({**BODY, "state": "word " * 3000})["x_truncated"]["state_tokens"] > 900


@pytest.mark.parametrize("setting", [{"min_label_mass": 0.5}, {"prior_correction": True}, {"prompt_style": "vllm"}])
def test_other_models_have_no_labels(setting: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="does not read labels"):
        quaver.load("embedded", **setting)


@pytest.mark.parametrize("wish", [{"x_min_label_mass": 0.5}, {"x_prior_correction": True}, {"x_option_orders": 2}])
def test_nor_answer_what_is_wished_of_them(wish: dict[str, Any]) -> None:
    with quaver.load("embedded") as embedded, pytest.raises(BadRequest, match="does not read labels"):
        embedded.systemone({**BODY, **wish})


@pytest.mark.parametrize("wish", [{"x_min_label_mass": 1.5}, {"x_option_orders": 0}, {"x_option_orders": 256}])
def test_values_that_cannot_be(decider: Decider[Any], wish: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=next(iter(wish))):
        decider.systemone({**BODY, **wish})


def test_the_style_of_vllm(folder: Path) -> None:
    written = (
        "Question: What is it?\nA: z - a parcel\nB: a\nC: m - a letter\nAnswer with the letter of one option only."
    )
    whole = next_token(folder, f"{STATE}\n\n{written}")
    held = [float(whole[tokenizer("smollm2").encode([label], "reference")[0][0]]) for label in "ABC"]
    with quaver.load(str(folder), prompt_style="vllm") as other:
        reply = other.systemone(BODY)
        with pytest.raises(BadRequest, match="order of the request"):
            other.systemone({**BODY, "x_option_orders": 2})
    assert list(numbers(reply)["what"].values()) == pytest.approx([p / sum(held) for p in held], abs=2e-5)


def test_encode_shows_the_prompts(decider: Decider[Any]) -> None:
    view = decider.encode(BODY)
    assert view.option_ids == [["true", "false"], ["a", "m", "z"], ["0", "1", "2"]]
    [(start, end), *_] = view.question_spans
    [asked] = tokenizer("smollm2").encode(["\n\n---\nQuestion: Is it late?"], "reference")
    assert view.ids[start:end][: len(asked)] == asked
