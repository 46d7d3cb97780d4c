"""The Decisions dialect: what is read out of a body, what is refused, what a reply looks like."""

from pathlib import Path
from typing import Any

import pytest

from quaver.errors import BadMedia, BadQuestion, BadRequest
from quaver.protocol import DecisionsCall, parse, parse_wire, reply
from quaver.questions import Answers, Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer

PNG = "data:image/png;base64,iVBORw0KGgo="
PREDICATE = {"type": "predicate", "instructions": "Yes?"}


def read(**body: Any) -> DecisionsCall:
    call = parse_wire({"input": "x", "questions": [PREDICATE], **body})
    assert isinstance(call, DecisionsCall)
    return call


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def text(words: str) -> dict[str, str]:
    return {"type": "input_text", "text": words}


IMAGE = {"type": "input_image", "image_url": PNG, "detail": "auto"}
CALL = {"type": "function_call", "call_id": "1", "name": "look_up", "arguments": "{}"}


@pytest.mark.parametrize(
    ("given", "state", "images"),
    [
        ("text", "text", 0),
        ([{"role": "user", "content": "text"}], "text", 0),
        ([user(text("a"), text("b"))], "a\nb", 0),
        ([user(text("a"), IMAGE)], "a", 1),
        ([user({"type": "input_json", "data": {"a": 1}})], {"a": 1}, 0),
        ([user(text("a"), {"type": "input_json", "data": [{"a": 1}]})], ["a", [{"a": 1}]], 0),
        ([{"role": "system", "content": "s"}], [{"role": "system", "content": "s"}], 0),
        (
            [{"role": "developer", "content": [text("d")]}, user(text("a"), IMAGE), user(IMAGE)],
            [
                {"role": "developer", "content": "d"},
                {"role": "user", "content": "a\n[image 1]"},
                {"role": "user", "content": "[image 2]"},
            ],
            2,
        ),
        (
            [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "o"}]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "phase": "final_answer"},
            ],
            [{"role": "assistant", "content": "o"}, {"role": "assistant", "content": "no"}],
            0,
        ),
        (
            [CALL, {"type": "function_call_output", "call_id": "1", "output": [text("found"), IMAGE]}],
            [{"call": "look_up", "input": "{}"}, {"output": "found\n[image 1]"}],
            1,
        ),
        (
            [
                {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "a.txt"},
            ],
            [{"call": "sh", "input": "ls"}, {"output": "a.txt"}],
            0,
        ),
    ],
)
def test_input(given: Any, state: Any, images: int) -> None:
    request = read(input=given).request
    assert request.state == state
    assert request.images == (PNG,) * images


def test_questions() -> None:
    questions = [
        {"type": "predicate", "name": "p", "instructions": [text("Is this"), IMAGE, text("broken?")]},
        {
            "type": "choice",
            "instructions": "?",
            "choices": [{"value": True}, {"value": "true", "description": "said so"}, {"value": False}],
        },
        {"type": "score", "instructions": "!", "levels": [{"label": "0", "description": "calm"}, {"label": "hot"}]},
    ]
    call = read(questions=questions)
    assert call.request.questions == {
        "p": Noul("Is this\n[image 1]\nbroken?"),
        "question_2": Choice("?", {"true (boolean)": None, "true": "said so", "false": None}),
        "question_3": Score("!", ["0: calm", "hot"]),
    }
    assert call.request.questions["question_2"].option_ids == ("true (boolean)", "true", "false")
    assert call.request.images == (PNG,)


def test_an_unnamed_question_never_takes_a_given_name() -> None:
    named = {**PREDICATE, "name": "question_1"}
    assert list(read(questions=[PREDICATE, named]).request.questions) == ["question_1_", "question_1"]


def test_hints_of_the_dialect_are_taken() -> None:
    part = {**text("a"), "prompt_cache_breakpoint": {"mode": "explicit"}}
    hints = {
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
        "safety_identifier": "user",
    }
    assert read(input=[user(part)], **hints).request.state == "a"


def choice(*values: Any) -> list[dict[str, Any]]:
    return [{"type": "choice", "instructions": "?", "choices": [{"value": value} for value in values]}]


@pytest.mark.parametrize(
    ("body", "message", "where"),
    [
        ({"extra": 1}, "extra is not a known field", ("extra",)),
        ({"input": 3}, "input must be text or a list of items, got 3", ("input",)),
        ({"input": []}, "input must be text or a list of items", ("input",)),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role should be 'user'", ("input", 0, "role")),
        ({"input": [user()]}, "input.0.content must be text or a list", ("input", 0, "content")),
        ({"input": [user({"type": "input_file"})]}, "type must be one of", ("input", 0, "content", 0, "type")),
        ({"input": [{"role": "system", "content": [IMAGE]}]}, "one of input_text, got", None),
        ({"input": [CALL, CALL]}, 'call_id "1" is used by two calls', ("input", 1, "call_id")),
        (
            {"input": [{"type": "custom_tool_call_output", "call_id": "1", "output": "x"}]},
            'call_id "1" matches no custom_tool_call before it',
            ("input", 0, "call_id"),
        ),
        ({"questions": []}, "questions must not be empty", ("questions",)),
        ({"questions": [PREDICATE] * 401}, "at most 400 items", ("questions",)),
        ({"questions": [{"type": "predicate"}]}, "question 0, instructions is required", None),
        ({"questions": [{**PREDICATE, "type": "noul"}]}, 'one of predicate, choice, score, got "noul"', None),
        ({"questions": [{**PREDICATE, "criteria": {}}]}, "criteria is not a known field", None),
        ({"questions": [{**PREDICATE, "name": "a"}] * 2}, '"a" is the name of two questions', ("questions", 1, "name")),
        ({"questions": choice("a", "a")}, '"a" appears twice', ("questions", 0, "choices", 1, "value")),
        ({"questions": choice(True, True)}, "true appears twice", ("questions", 0, "choices", 1, "value")),
        ({"questions": choice(1)}, "must be text or a boolean, got 1", ("questions", 0, "choices", 0, "value")),
        ({"questions": choice()}, "choices must not be empty", ("questions", 0, "choices")),
        ({"questions": choice(*map(str, range(256)))}, "at most 255 items", ("questions", 0, "choices")),
    ],
)
def test_refusals(body: dict[str, Any], message: str, where: tuple[str | int, ...] | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert message in str(caught.value)
    assert isinstance(caught.value, BadQuestion) == ("questions" in body)
    if where is not None:
        assert caught.value.where == where


def test_media_of_every_kind() -> None:
    parts = [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "input_video", "video_url": "BBBB"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    ]
    output = {"type": "function_call_output", "call_id": "1", "output": [parts[2]]}
    lists = {"images": ["CCCC"], "files": ["data:audio/wav;base64,DD"]}
    request = read(input=[user(text("see"), *parts), CALL, output], **lists).request
    url = parts[2]["image_url"]
    assert request.images == ("CCCC", url, url)
    assert request.audio == (lists["files"][0], "AAAA")
    assert request.videos == ("BBBB",)
    assert request.state[0]["content"] == "see\n[audio 2]\n[video 1]\n[image 2]"
    assert request.state[2] == {"output": "[image 3]"}
    assert request.media_places == {
        ("images", 0): ("images", 0),
        ("images", 1): ("input", 0, "content", 3),
        ("images", 2): ("input", 2, "output", 0),
        ("audio", 0): ("files", 0),
        ("audio", 1): ("input", 0, "content", 1),
        ("videos", 0): ("input", 0, "content", 2),
    }


def test_paths_and_bytes_are_for_callers_in_this_process(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"png")
    body = {"input": "x", "questions": [PREDICATE], "images": [b"png", str(file)]}
    assert parse(body).request.images == (b"png", file)
    with pytest.raises(BadMedia, match=r"images\.0 must be a data URL or base64"):
        parse_wire(body)


ANSWERS = Answers(
    {
        "question_1": NoulAnswer(0.9),
        "c": ChoiceAnswer("true (boolean)", {"true": 0.2, "true (boolean)": 0.5, "b": 0.3}, 0.25),
        "question_3": ScoreAnswer(0.75, (0.25, 0.75), ("0: calm", "hot"), 0.5),
    },
    model="m-1",
    reading="independent",
    input_tokens=10,
    cached_tokens=4,
    truncated_tokens=2,
)
QUESTIONS = [
    PREDICATE,
    {"name": "c", **choice("true", True, "b")[0]},
    {"type": "score", "instructions": "!", "levels": [{"label": "0", "description": "calm"}, {"label": "hot"}]},
]


def test_reply() -> None:
    assert reply(read(questions=QUESTIONS), ANSWERS) == {
        "model": "m-1",
        "answers": [
            {"type": "predicate", "name": None, "probability": 0.9},
            {
                "type": "choice",
                "name": "c",
                "choice": True,
                "probabilities": [
                    {"value": "true", "probability": 0.2},
                    {"value": True, "probability": 0.5},
                    {"value": "b", "probability": 0.3},
                ],
                "confidence": 0.25,
            },
            {
                "type": "score",
                "name": None,
                "score": 0.75,
                "probabilities": [
                    {"value": 0, "label": "0", "probability": 0.25},
                    {"value": 1, "label": "hot", "probability": 0.75},
                ],
                "confidence": 0.5,
            },
        ],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 10,
        },
    }


def test_own_fields_of_the_reply_come_only_to_those_who_use_them() -> None:
    said = reply(read(questions=QUESTIONS, x_confidence="typesafe", x_timing=True), ANSWERS)
    assert said["x_reading"] == "independent"
    assert said["x_truncated"] == {"state_tokens": 2}
    assert set(said["x_timing"]) == {"prepare", "queue", "prefill", "head", "tokens_computed", "tokens_reused"}
    assert "x_reading" not in reply(read(questions=QUESTIONS, cache_salt="a"), ANSWERS)
