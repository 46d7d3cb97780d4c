"""A Clef release behind ``quaver.load``: the reference's answers, both readings, overflow, media."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from PIL import Image
from vectors import FLASH, cases

import quaver
from quaver.decider import Decider
from quaver.decider.family import Prepared
from quaver.errors import BadMedia, BadQuestion, BadRequest, Expired, TooLong
from quaver.models.processor import MediaProcessor

CASES = {case["id"]: case for case in cases("clef-flash-tiny/cases")}
ANSWERED = [case for case in CASES.values() if case.get("answers") and not case.get("max_length")]


@pytest.fixture(scope="module")
def reference() -> Iterator[Decider[Any]]:
    with quaver.load(str(FLASH), special_tokens="reference", confidence="max", dtype="float32") as decider:
        yield decider


@pytest.fixture(scope="module")
def decider() -> Iterator[Decider[Any]]:
    with quaver.load(str(FLASH), dtype="float32") as decider:
        yield decider


def body(case: dict[str, Any]) -> dict[str, Any]:
    """The case's body with its media as paths of this machine."""
    request = dict(case["request"])
    for kind in ("images", "videos"):
        if request.get(kind):
            request[kind] = [item if item.startswith("data:") else FLASH / item for item in request[kind]]
    return request


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case["id"])
def test_replies_equal_the_reference(reference: Decider[Any], case: dict[str, Any]) -> None:
    reply = reference.systemone(body(case))
    expected = case["answers"]
    assert reply["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    assert list(reply["answers"]) == list(expected["answers"])
    for name, answer in expected["answers"].items():
        ours = reply["answers"][name]
        for key, value in answer.items():
            if key == "probabilities":
                assert list(ours[key]) == list(value)
                assert ours[key] == pytest.approx(value, abs=1.5e-4)
            elif isinstance(value, float):
                # The reference rounds to 4 decimals; an expectation adds up to 10 of them.
                assert ours[key] == pytest.approx(value, abs=1.5e-3 if key == "score" else 1.5e-4)
            elif key != "legend":
                assert ours[key] == value
        assert sum(ours.get("probabilities", {"": 1.0}).values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["text-plain", "choice-unsorted", "image-2"])
def test_encode_shows_what_is_read(reference: Decider[Any], name: str) -> None:
    case = CASES[name]
    view = reference.encode(body(case))
    assert view.ids == case["input_ids"]
    assert view.question_spans == [tuple(q["question_span"]) for q in case["questions"]]
    assert view.option_spans == [[tuple(span) for span in q["option_spans"]] for q in case["questions"]]
    assert view.option_ids == [q["option_ids"] for q in case["questions"]]


#: ``<|im_end|>`` in the release's tokenizer.
END_OF_TURN = 3002
#: What sharing a pass or a state may change in a probability.
TOLERANCE = 2e-5
STATE = "The parcel came late and the box was torn."
QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"z": "a parcel", "a": None}},
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
}


def probabilities(answer: dict[str, Any]) -> list[float]:
    return list(answer["probabilities"].values()) if "probabilities" in answer else [answer["noul"]]


def test_independent_reading_ignores_ids_order_and_neighbours(decider: Decider[Any]) -> None:
    def ask(questions: dict[str, Any]) -> dict[str, Any]:
        reply = decider.systemone({"state": STATE, "questions": questions, "x_reading": "independent"})
        assert reply["x_reading"] == "independent"
        answers: dict[str, Any] = reply["answers"]
        return answers

    together = ask(QUESTIONS)
    renamed = ask({f"{name} \U0001f600": question for name, question in reversed(QUESTIONS.items())})
    assert list(renamed) == [f"{name} \U0001f600" for name in reversed(QUESTIONS)]
    for name, question in QUESTIONS.items():
        expected = pytest.approx(probabilities(together[name]), abs=TOLERANCE)
        assert probabilities(ask({name: question})[name]) == expected
        assert probabilities(renamed[f"{name} \U0001f600"]) == expected


def test_joint_reading_is_the_default_and_sees_neighbours(decider: Decider[Any]) -> None:
    together = decider.systemone({"state": STATE, "questions": QUESTIONS})
    alone = decider.systemone({"state": STATE, "questions": {"late": QUESTIONS["late"]}})
    assert together["x_reading"] == "joint"
    assert together["answers"]["late"] != alone["answers"]["late"]


def test_a_long_state_is_cut_and_says_so_or_is_refused() -> None:
    with quaver.load(str(FLASH), max_length=200) as decider:
        asked = {"state": STATE * 50, "questions": {"late": QUESTIONS["late"]}}
        cut = decider.systemone(asked)
        whole = len(decider.encode({**asked, "state": ""}).ids)
        assert cut["usage"]["input_tokens"] == 200
        state_tokens = len(_long_encode(asked)) - whole
        assert cut["x_truncated"] == {"state_tokens": state_tokens - (200 - whole)}
        with pytest.raises(TooLong, match=f"the state has {state_tokens} tokens"):
            decider.systemone({**asked, "x_on_overflow": "refuse"})
        assert "x_truncated" not in decider.systemone({**asked, "state": STATE})


@pytest.mark.parametrize(("pictures", "item"), [(1, 0), (3, 2)])
def test_an_item_that_alone_is_too_long_is_named(pictures: int, item: int) -> None:
    """A picture of 640 by 480 pixels has 300 tokens and what is around them."""
    asked = {"state": STATE, "questions": QUESTIONS, "images": [FLASH / "media/scene_640x480.png"] * pictures}
    limit = 303 * pictures - 100
    with (
        quaver.load(str(FLASH), max_length=limit) as decider,
        pytest.raises(BadMedia, match=rf"images item {item}: with it the media have over {limit}") as refused,
    ):
        decider.systemone(asked)
    assert refused.value.where == ("images", item)


def _long_encode(asked: dict[str, Any]) -> list[int]:
    with quaver.load(str(FLASH)) as decider:
        return decider.encode(asked).ids


def test_special_tokens_in_text_are_escaped_by_default(decider: Decider[Any], reference: Decider[Any]) -> None:
    plain = {"state": STATE, "questions": {"late": QUESTIONS["late"]}}
    spelled = {**plain, "state": "<|im_end|>"}
    turns = decider.encode(plain).ids.count(END_OF_TURN)
    assert decider.encode(spelled).ids.count(END_OF_TURN) == turns
    assert reference.encode(spelled).ids.count(END_OF_TURN) == turns + 1


def test_an_image_has_one_meaning_on_every_way_in(decider: Decider[Any]) -> None:
    path = FLASH / "media/odd_37x91.png"
    asked = {"late": quaver.Noul("Is it late?")}
    ways = [path, str(path), path.read_bytes(), Image.open(path)]
    answers = [decider.decide(STATE, asked, images=[way])["late"] for way in ways]
    # The first is read, the others find its state.
    assert [answer.probability for answer in answers] == pytest.approx(
        [answers[0].probability] * len(ways), abs=TOLERANCE
    )
    assert answers[0] != decider.decide(STATE, asked)["late"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"audio": ["AAAA"]}, BadMedia, "cannot hear"),
        ({"images": ["AAAA"]}, BadMedia, "images item 0"),
        ({"questions": {}}, BadQuestion, "questions"),
        ({"questions": {"": {"type": "noul"}}}, BadQuestion, "neither"),
        ({"x_reading": "aloud"}, BadRequest, "x_reading"),
    ],
)
def test_refusals_come_before_the_engine(
    decider: Decider[Any], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = decider.stats()
    with pytest.raises(error, match=message):
        decider.systemone({"state": STATE, "questions": QUESTIONS, **change})
    assert decider.stats() == before


def test_many_threads_share_a_decider(decider: Decider[Any]) -> None:
    bodies = [{"state": f"{STATE} {i}", "questions": QUESTIONS} for i in range(24)]
    alone = [decider.systemone(body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        for together, expected in zip(pool.map(decider.systemone, bodies), alone, strict=True):
            for name, answer in expected["answers"].items():
                assert probabilities(together["answers"][name]) == pytest.approx(probabilities(answer), abs=TOLERANCE)


def test_a_picture_is_prepared_without_workers(decider: Decider[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    read = MediaProcessor._encode

    def watched(*arguments: Any) -> Any:
        threads.append(torch.get_num_threads())
        return read(*arguments)

    monkeypatch.setattr(MediaProcessor, "_encode", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        decider.systemone(
            {"state": STATE, "questions": {"late": QUESTIONS["late"]}, "images": [FLASH / "media/odd_37x91.png"]}
        )
        assert threads == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_answered_request_leaves_nothing_to_the_garbage_collector(decider: Decider[Any]) -> None:
    picture = {"images": [FLASH / "media/odd_37x91.png"]}
    asked = {"state": STATE, "questions": QUESTIONS, **picture}
    decider.systemone(asked)
    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            decider.systemone({**asked, "state": f"{STATE} {number}"})
            with pytest.raises(Expired):
                decider.systemone({**asked, "state": f"{STATE} late {number}", "x_timeout_ms": 1})
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [found for found in gc.garbage if isinstance(found, torch.Tensor | Prepared)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not kept


def test_both_dialects_answer_the_same(decider: Decider[Any]) -> None:
    s1 = decider.systemone({"state": STATE, "questions": {"late": QUESTIONS["late"]}})
    oa = decider.decisions(
        {"input": STATE, "questions": [{"type": "predicate", "name": "late", "instructions": "Is it late?"}]}
    )
    assert oa["answers"][0]["probability"] == s1["answers"]["late"]["noul"]


def test_a_closed_decider_refuses() -> None:
    decider = quaver.load(str(FLASH))
    decider.close()
    with pytest.raises(quaver.QuaverError, match="has stopped"):
        decider.systemone({"state": STATE, "questions": QUESTIONS})
