"""A batch is the single request once per state: the same rules, the same words."""

from __future__ import annotations

from typing import Any

import pytest

from quaver.errors import BadMedia, BadQuestion, BadRequest
from quaver.protocol import MAX_STATES, parse_batch, parse_wire, reply
from quaver.questions import Answers, NoulAnswer, Timing

QUESTIONS = {
    "q": {"type": "noul", "instructions": "Is <it> blue?"},
    "c": {"type": "choice", "criteria": {"a": "like <it>", "b": None}},
}
OWN = {
    "images": ["AAAA"],
    "assets": {"<it>": {"type": "image", "data_base64": "BBBB"}},
    "x_reading": "independent",
    "cache_salt": "s",
    "x_priority": 7,
    "x_timeout_ms": 100,
    "x_abstain": {"target": 0.1},
}
STATES = ["text", {"a": [1, 1.0]}, [{"type": "image_url", "image_url": "CCCC"}, {"type": "text", "text": "<it>"}], None]


@pytest.mark.parametrize("own", [{}, OWN])
def test_every_state_is_asked_as_alone(own: dict[str, Any]) -> None:
    body = {"questions": QUESTIONS, "model": "m", **own}
    call = parse_batch({**body, "states": STATES})
    assert (call.model, call.timeout) == ("m", 0.1 if own else None)
    alone = [parse_wire({**body, "state": state}).request for state in STATES]
    assert [call.request(index) for index in range(len(STATES))] == alone


def test_parts_of_a_form_serve_every_state() -> None:
    body = {"states": ["<it> 1", "<it> 2"], "questions": QUESTIONS, "assets": {"<it>": {"type": "image", "part": "p"}}}
    call = parse_batch(body, {"p": b"png"})
    assert [call.request(index).images for index in (0, 1)] == [(b"png",)] * 2


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        ({"states": None}, "states should be a valid list, got null", ("states",)),
        ({"states": "text"}, "states should be a valid list", ("states",)),
        ({"states": []}, "states must not be empty", ("states",)),
        ({"states": [1] * (MAX_STATES + 1)}, "has 10001 items and one request takes at most 10000", ("states",)),
        ({"state": "x"}, "a batch has a list of states", ("state",)),
        ({"questions": {}}, "questions must not be empty", ("questions",)),
        ({"questions": [{"type": "predicate"}]}, "questions should be a valid object", ("questions",)),
        ({"questions": {"q": {"type": "score", "criteria": [1] * 11}}}, "got 11", ("questions", "q", "criteria")),
        ({"x_timeout_ms": -1}, "greater than 0", ("x_timeout_ms",)),
        ({"images": [3]}, "images.0", ("images", 0)),
    ],
)
def test_a_broken_envelope_is_refused_as_a_whole(change: dict[str, Any], message: str, where: tuple[Any, ...]) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_batch({"states": ["x"], "questions": QUESTIONS, **change})
    assert message in str(caught.value)
    assert caught.value.where == where
    assert isinstance(caught.value, BadQuestion) == (where[0] == "questions")


@pytest.mark.parametrize("body", [[1], "x", None])
def test_a_batch_is_an_object(body: Any) -> None:
    with pytest.raises(BadRequest, match="must be a JSON object"):
        parse_batch(body)


def test_a_state_that_cannot_be_asked_fails_when_it_is_its_turn() -> None:
    call = parse_batch({"states": ["x", [{"type": "image_url", "image_url": 3}]], "questions": QUESTIONS})
    assert call.request(0).state == "x"
    with pytest.raises(BadMedia, match=r"state.0 has no data URL"):
        call.request(1)


def test_the_reply_has_a_result_per_state_and_the_sum_of_what_was_used() -> None:
    call = parse_batch({"states": ["x", "y", "z"], "questions": {"q": {"type": "noul"}}, "x_timing": True})
    answers = Answers({"q": NoulAnswer(0.5)}, "m-1", "joint", 12, cached_tokens=5, timing=Timing(1, 2, 3, 4))
    error = {"status": 422, "error": {"message": "no", "type": "t", "param": None, "code": "c"}}
    body = call.reply("m-1", [answers, error, answers])
    alone = reply(parse_wire({"state": "x", "questions": {"q": {"type": "noul"}}, "x_timing": True}), answers)
    assert body == {
        "model": "m-1",
        "results": [alone, error, alone],
        "total_usage": {"input_tokens": 24, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 10}},
    }
