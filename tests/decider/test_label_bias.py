"""Prior correction and orders of options, end to end, against the same done by hand."""

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
from quaver.decider.label import Priors
from quaver.heads.labels import LabelRead

TOLERANCE = 2e-5
STATE = "The parcel came late and the box was torn."
QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"z": None, "a": None, "m": None}},
}
BODY = {"state": STATE, "questions": QUESTIONS}
CORRECTED = {**BODY, "x_prior_correction": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_release(tmp_path_factory.mktemp("releases") / "tiny-chat")


@pytest.fixture
def decider(folder: Path) -> Iterator[Decider[Any]]:
    with quaver.load(str(folder)) as decider:
        yield decider


def options(reply: dict[str, Any], name: str) -> dict[str, float]:
    answer = reply["answers"][name]
    return answer.get("probabilities") or {"true": answer["noul"], "false": 1 - answer["noul"]}


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["input_tokens_details"]["cached_tokens"])


def test_the_answer_about_nothing_is_divided_out(decider: Decider[Any]) -> None:
    plain, nothing = decider.systemone(BODY), decider.systemone({**BODY, "state": "N/A"})
    corrected = decider.systemone(CORRECTED)
    for name in QUESTIONS:
        ratio = {option: p / options(nothing, name)[option] for option, p in options(plain, name).items()}
        expected = {option: value / sum(ratio.values()) for option, value in ratio.items()}
        assert options(corrected, name) == pytest.approx(expected, abs=TOLERANCE)
    assert corrected["x_label_mass"] == pytest.approx(plain["x_label_mass"], abs=TOLERANCE)
    about_nothing = decider.systemone({**CORRECTED, "state": "N/A"})
    assert list(options(about_nothing, "what").values()) == pytest.approx([1 / 3] * 3, abs=TOLERANCE)


def test_a_prior_is_read_once_for_a_schema_whatever_its_order(decider: Decider[Any]) -> None:
    first = decider.systemone(CORRECTED)
    before = decider.stats()["tokens_computed"]
    turned = {"type": "choice", "instructions": "What is it?", "criteria": {"m": None, "a": None, "z": None}}
    other = {**CORRECTED, "state": "Nothing came.", "questions": {"renamed": turned}}
    again = decider.systemone(other)
    computed = decider.stats()["tokens_computed"] - before
    bare = decider.systemone({**other, "x_prior_correction": False, "cache_salt": "to read it all again"})
    assert computed <= bare["usage"]["input_tokens"]
    assert again["usage"]["input_tokens"] - cached(again) == computed
    assert first["usage"]["input_tokens"] > decider.systemone(BODY)["usage"]["input_tokens"]


def test_tenants_cannot_tell_who_asked_a_schema(decider: Decider[Any]) -> None:
    alone = cached(decider.systemone({**CORRECTED, "cache_salt": "one"}))
    assert cached(decider.systemone({**CORRECTED, "cache_salt": "two"})) == alone
    assert cached(decider.systemone({**CORRECTED, "cache_salt": "one"})) > alone


def test_orders_are_averaged(decider: Decider[Any], folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    found: dict[str, list[float]] = {"a": [], "m": [], "z": []}
    for order in ("amz", "mza", "zam"):
        lines = "\n".join(f"{label}. {name}" for label, name in zip("ABC", order, strict=True))
        written = f"{STATE}\n\n---\nQuestion: What is it?\n{lines}\nReply with the letter only."
        with torch.inference_mode():
            logits = model(torch.tensor([rendered_ids("smollm2", written)])).logits[0, -1]
        whole = logits.double().softmax(-1)
        ways = [
            {ids[0] for ids in tokenizer("smollm2").encode([x, f" {x}"], "reference") if len(ids) == 1} for x in "ABC"
        ]
        held = [sum(float(whole[token]) for token in tokens) for tokens in ways]
        for name, value in zip(order, held, strict=True):
            found[name].append(value / sum(held))
    reply = decider.systemone({**BODY, "x_option_orders": 200})
    assert options(reply, "what") == pytest.approx({name: sum(p) / 3 for name, p in found.items()}, abs=TOLERANCE)
    spread = max(max(p) - min(p) for p in found.values())
    assert reply["x_order_spread"]["what"] == pytest.approx(spread, abs=TOLERANCE)
    assert 0 <= reply["x_order_spread"]["late"] <= 1


def test_both_corrections_and_their_settings(folder: Path, decider: Decider[Any]) -> None:
    wish = {"x_prior_correction": True, "x_option_orders": 2}
    asked = decider.systemone({**BODY, **wish})
    with quaver.load(str(folder), prior_correction=True, option_orders=2) as set_so:
        given = set_so.systemone(BODY)
        unwished = set_so.systemone({**BODY, "x_prior_correction": False, "x_option_orders": 1})
    plain = decider.systemone(BODY)
    for name in QUESTIONS:
        assert options(given, name) == pytest.approx(options(asked, name), abs=TOLERANCE)
        assert options(unwished, name) == pytest.approx(options(plain, name), abs=TOLERANCE)
    assert "x_order_spread" not in unwished


def test_priors_that_were_not_used_are_forgotten() -> None:
    priors, read = Priors(size=2), LabelRead((-1.0,), 0.5, True)
    for key in ("a", "b"):
        priors.put(key, read)
    assert priors.get("a") == read
    priors.put("c", read)
    assert [priors.get(key) for key in ("a", "b", "c")] == [read, None, read]
