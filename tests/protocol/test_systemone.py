"""The System One dialect: what is read out of a body, what is refused, what a reply looks like."""

from pathlib import Path
from typing import Any

import pytest

from quaver.errors import BadMedia, BadQuestion, BadRequest
from quaver.protocol import parse, parse_wire, reply
from quaver.questions import (
    Answers,
    Choice,
    ChoiceAnswer,
    Noul,
    NoulAnswer,
    Question,
    Request,
    Score,
    ScoreAnswer,
    Timing,
)

NOUL = {"q": {"type": "noul", "instructions": "Yes?"}}
PNG = "data:image/png;base64,iVBORw0KGgo="


def read(body: dict[str, Any], attachments: dict[str, bytes] | None = None) -> Request:
    return parse_wire(body, attachments).request


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ({"type": "noul"}, Noul()),
        ({"type": "noul", "instructions": None, "criteria": None}, Noul()),
        ({"type": "noul", "instructions": {"ask": ["a"]}}, Noul({"ask": ["a"]})),
        ({"type": "noul", "criteria": {}}, Noul(None, {})),
        ({"type": "noul", "criteria": {"true": "t"}}, Noul(None, {"true": "t"})),
        ({"type": "noul", "criteria": {"false": None}}, Noul(None, {"false": None})),
        ({"type": "noul", "criteria": {"false": [1], "true": {"a": 1}}}, Noul(None, {"false": [1], "true": {"a": 1}})),
        ({"type": "noul", "criteria": "it is so"}, Noul(None, {"true": "it is so"})),
        ({"type": "choice", "criteria": {"a": None, "b": {"x": 1}}}, Choice(None, {"a": None, "b": {"x": 1}})),
        ({"type": "choice", "criteria": ["a", "b"]}, Choice(None, {"a": None, "b": None})),
        ({"type": "choice", "criteria": {"only": "one"}}, Choice(None, {"only": "one"})),
        ({"type": "score", "criteria": ["calm", {"x": 1}, None, 2]}, Score(None, ["calm", {"x": 1}, None, 2])),
        ({"type": "score", "criteria": ["one"]}, Score(None, ["one"])),
    ],
)
def test_questions(body: dict[str, Any], question: Question) -> None:
    assert read({"state": "x", "questions": {"q": body}}).questions["q"] == question


def test_an_absent_side_stays_absent_and_a_null_side_stays_null() -> None:
    request = read({"state": "x", "questions": {"q": {"type": "noul", "criteria": {"false": None}}}})
    assert dict(request.questions["q"].criteria or {}) == {"false": None}


def test_option_order_is_the_request_order() -> None:
    request = read({"state": "x", "questions": {"q": {"type": "choice", "criteria": {"b": None, "a": None}}}})
    assert request.questions["q"].option_ids == ("b", "a")


@pytest.mark.parametrize("state", ["text", {"a": [1, 1.0]}, [1, "x"], None, 3, True, [{"type": "text", "text": "t"}]])
def test_states_are_kept_as_given(state: object) -> None:
    assert read({"state": state, "questions": NOUL}).state == state


def test_unknown_top_level_fields_are_ignored() -> None:
    assert read({"state": "x", "questions": NOUL, "seed": 7, "x_trace": "t"}).state == "x"


def test_own_fields() -> None:
    own = {"x_reading": "joint", "x_on_overflow": "refuse", "x_confidence": "max"}
    request = read({"state": "x", "questions": NOUL, **own})
    assert (request.reading, request.on_overflow, request.confidence) == ("joint", "refuse", "max")


def asking(**question: Any) -> dict[str, Any]:
    return {"state": "x", "questions": {"q": question}}


@pytest.mark.parametrize(
    ("body", "message", "where"),
    [
        ({}, "questions is required", ("questions",)),
        ({"questions": NOUL}, "state is required", ("state",)),
        ({"state": "x"}, "questions is required", ("questions",)),
        ({"state": "x", "questions": {}}, "questions must not be empty", ("questions",)),
        ({"state": "x", "questions": None}, "questions should be a valid object, got null", ("questions",)),
        ({"state": "x", "questions": {"q": 3}}, 'question "q" must be an object, got 3', ("questions", "q")),
        (asking(), 'question "q": type must be one of noul, choice, score, but', ("questions", "q", "type")),
        (asking(type="boolean"), 'score, got "boolean"', ("questions", "q", "type")),
        (asking(type=["noul"]), 'score, got ["noul"]', ("questions", "q", "type")),
        (asking(type="box"), 'got "box"', ("questions", "q", "type")),
        (asking(type="noul", labels={}), 'question "q", labels is not a known field', ("questions", "q", "labels")),
        (asking(type="noul", criteria={"yes": 1}), "describe true, false or both", ("questions", "q", "criteria")),
        (asking(type="noul", criteria=3), "noul criteria must be an object", ("questions", "q", "criteria")),
        (asking(type="choice"), "criteria is required", ("questions", "q", "criteria")),
        (asking(type="choice", criteria={}), "1 to 255 options, got 0", ("questions", "q", "criteria")),
        (asking(type="choice", criteria=["a", "a"]), "'a' appears twice", ("questions", "q", "criteria")),
        (asking(type="choice", criteria=["a", 1]), "options must be text, got 1", ("questions", "q", "criteria")),
        (asking(type="choice", criteria=[str(i) for i in range(256)]), "got 256", ("questions", "q", "criteria")),
        (asking(type="score", criteria={"0": "calm"}), "must be a list of levels", ("questions", "q", "criteria")),
        (asking(type="score", criteria=["x"] * 11), "1 to 10 levels, got 11", ("questions", "q", "criteria")),
        ({"state": "x", "questions": NOUL, "model": 3}, "model should be a valid string, got 3", ("model",)),
        (
            {"state": "x", "questions": NOUL, "x_reading": "odd"},
            "'joint' or 'independent', got \"odd\"",
            ("x_reading",),
        ),
        ({"state": "x", "questions": NOUL, "x_timing": 1}, "x_timing should be a valid boolean", ("x_timing",)),
        ({"state": "x", "questions": NOUL, "cache_salt": "s" * 129}, "at most 128 characters", ("cache_salt",)),
        ({"state": "x", "questions": NOUL, "cache_salt": 3}, "cache_salt should be a valid string", ("cache_salt",)),
        ({"state": "x", "questions": NOUL, "x_priority": 101}, "less than or equal to 100, got 101", ("x_priority",)),
        ({"state": "x", "questions": NOUL, "x_priority": True}, "x_priority should be a valid", ("x_priority",)),
        ({"state": "x", "questions": NOUL, "x_timeout_ms": 0}, "greater than 0, got 0", ("x_timeout_ms",)),
        ({"state": "x", "questions": NOUL, "x_timeout_ms": 1e9}, "less than or equal to 86400000", ("x_timeout_ms",)),
        ({"state": "x", "questions": NOUL, "assets": {}}, "assets must not be empty", ("assets",)),
    ],
)
def test_refusals(body: dict[str, Any], message: str, where: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_wire(body)
    assert message in str(caught.value)
    assert caught.value.where == where
    assert isinstance(caught.value, BadQuestion) == (where[0] == "questions")


def test_a_million_options_are_refused_at_once() -> None:
    with pytest.raises(BadQuestion, match="got 1000000"):
        parse_wire(asking(type="choice", criteria=[str(i) for i in range(1_000_000)]))


class TestMedia:
    def test_lists_keep_their_order(self) -> None:
        request = read({"state": "x", "questions": NOUL, "images": [PNG, "AAAA"], "audio": ["BBBB"], "videos": ["CC"]})
        assert (request.images, request.audio, request.videos) == ((PNG, "AAAA"), ("BBBB",), ("CC",))

    def test_files_go_where_their_type_says(self) -> None:
        files = [PNG, "data:audio/wav;base64,AA", "data:video/mp4;base64,AA"]
        request = read({"state": "x", "questions": NOUL, "files": files})
        assert (request.images, request.audio, request.videos) == ((files[0],), (files[1],), (files[2],))

    def test_parts_of_an_array_state(self) -> None:
        state = [
            {"type": "text", "text": "Photo of a parcel"},
            {"type": "image_url", "image_url": {"url": PNG}},
            {"type": "text", "text": "sent today"},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ]
        request = read({"state": state, "questions": NOUL})
        assert request.state == "Photo of a parcel\nsent today"
        assert (request.images, request.audio) == ((PNG,), ("AAAA",))

    def test_parts_of_a_message_leave_a_marker(self) -> None:
        part = {"type": "input_image", "image_url": PNG}
        asked = {"role": "user", "content": [{"type": "text", "text": "see"}, part]}
        state = [asked, {"role": "assistant", "content": "k"}]
        request = read({"state": state, "questions": NOUL, "images": ["AAAA"]})
        assert request.images == ("AAAA", PNG)
        assert request.state[0]["content"] == [{"type": "text", "text": "see"}, {"type": "text", "text": "[image 2]"}]
        assert request.state[1] == state[1]

    def test_parts_are_found_at_any_depth(self) -> None:
        image = {"type": "image_url", "image_url": {"url": PNG}}
        state = {"log": [{"shown": image, "n": 1}, {"type": "video_url", "video_url": "AAAA"}], "type": "image_url?"}
        request = read({"state": state, "questions": NOUL})
        assert (request.images, request.videos) == ((PNG,), ("AAAA",))
        assert request.state == {
            "log": [{"shown": {"type": "text", "text": "[image 1]"}, "n": 1}, {"type": "text", "text": "[video 1]"}],
            "type": "image_url?",
        }

    def test_a_lone_part_leaves_no_text(self) -> None:
        request = read({"state": {"type": "image_url", "image_url": PNG}, "questions": NOUL})
        assert (request.state, request.images) == ("", (PNG,))

    def test_where_each_medium_stood(self) -> None:
        body = {
            "state": [{"type": "text", "text": "<a>"}, {"type": "input_image", "image_url": "BBBB"}],
            "questions": NOUL,
            "images": ["AAAA"],
            "files": [PNG, "data:video/mp4;base64,AA"],
            "assets": {"<a>": {"type": "image", "data_base64": "CCCC"}},
        }
        request = read(body)
        assert request.images == ("AAAA", PNG, "BBBB", "CCCC")
        assert request.media_places == {
            ("images", 0): ("images", 0),
            ("images", 1): ("files", 0),
            ("videos", 0): ("files", 1),
            ("images", 2): ("state", 1),
            ("images", 3): ("assets", "<a>"),
        }

    @pytest.mark.parametrize("field", ["instructions", "criteria"])
    def test_parts_in_a_question_are_refused(self, field: str) -> None:
        part = {"type": "image_url", "image_url": PNG}
        question = {"type": "score", "criteria": ["low"], field: [part, "high"]}
        with pytest.raises(BadMedia, match=f'question "q", {field}.0: media parts stand in the state'):
            read({"state": "x", "questions": {"q": question}})

    def test_addresses_pass_and_are_judged_where_media_are_read(self) -> None:
        sources = ["https://example.org/a.png", "file:a.png", "a.png", "FTP://x"]
        assert read({"state": "x", "questions": NOUL, "images": sources}).images == tuple(sources)

    def test_assets_stand_in_text_as_markers(self) -> None:
        body = {
            "state": {"before": "<a> and <b>", "list": ["<a>"]},
            "questions": {
                "n": {"type": "noul", "instructions": "Is <a> like <b>?", "criteria": {"true": "<b> is"}},
                "c": {"type": "choice", "criteria": {"<a>": "like <a>"}},
            },
            "assets": {
                "<a>": {"type": "image", "format": "png", "data_base64": "AAAA"},
                "<b>": {"type": "image", "part": "file-b"},
            },
        }
        request = read(body, {"file-b": b"png"})
        assert request.images == ("AAAA", b"png")
        assert request.state == {"before": "[image 1] and [image 2]", "list": ["[image 1]"]}
        assert request.questions["n"] == Noul("Is [image 1] like [image 2]?", {"true": "[image 2] is"})
        assert request.questions["c"].option_ids == ("<a>",)
        assert dict(request.questions["c"].criteria or {}) == {"<a>": "like [image 1]"}

    @pytest.mark.parametrize("criteria", [["<a>", "b"], {"<a>": None, "b": None}])
    def test_the_name_of_an_option_claims_no_asset(self, criteria: Any) -> None:
        asset = {"<a>": {"type": "image", "data_base64": "AAAA"}}
        with pytest.raises(BadMedia, match='asset "<a>" is not referenced'):
            parse_wire({"state": "x", "questions": {"q": {"type": "choice", "criteria": criteria}}, "assets": asset})

    def test_a_state_without_media_is_handed_on_uncopied(self) -> None:
        state = {"a": [{"type": "text", "text": "t"}, [1, 2]]}
        assert read({"state": state, "questions": NOUL}).state is state

    def test_a_placeholder_inside_another_is_not_torn(self) -> None:
        assets = {name: {"type": "image", "data_base64": name} for name in ("img", "img2")}
        request = read({"state": "img2 img", "questions": NOUL, "assets": assets})
        assert request.state == "[image 2] [image 1]"

    @pytest.mark.parametrize(
        ("extra", "attachments", "message"),
        [
            ({"images": [{"url": PNG}]}, {}, "images.0 must be a data URL or base64 as text"),
            ({"files": ["AAAA"]}, {}, "files.0 must be a data URL"),
            ({"files": ["https://x/y.png"]}, {}, "files.0 must be a data URL"),
            ({"state": {"a": [{"type": "image_url"}]}}, {}, "state.a.0 has no data URL"),
            ({"state": [{"type": "image_url"}]}, {}, "state.0 has no data URL or base64 in image_url"),
            ({"assets": {"<a>": {"type": "image", "data_base64": "AA"}}}, {}, 'asset "<a>" is not referenced'),
            ({"state": "<a>", "assets": {"<a>": {"type": "image"}}}, {}, "either data_base64 or part"),
            ({"state": "<a>", "assets": {"<a>": {"type": "image", "part": "p"}}}, {}, 'names part "p", which is not'),
            ({}, {"stray": b"x"}, 'part "stray" must be named by one asset, is named by 0'),
        ],
    )
    def test_refusals(self, extra: dict[str, Any], attachments: dict[str, bytes], message: str) -> None:
        with pytest.raises(BadMedia) as caught:
            parse_wire({"state": "x", "questions": NOUL, **extra}, attachments)
        assert message in str(caught.value)

    def test_other_things_beside_media_parts_are_refused(self) -> None:
        with pytest.raises(BadRequest, match=r"state\.1: beside media parts only"):
            parse_wire({"state": [{"type": "image_url", "image_url": PNG}, 3], "questions": NOUL})

    @pytest.mark.parametrize("item", ["A" * 300, "A" * 10_000, "A/" * 3000, "\0", ""])
    def test_text_that_names_no_file_stays_text(self, item: str) -> None:
        assert parse({"state": "x", "questions": NOUL, "images": [item]}).request.images == (item,)

    def test_bytes_and_paths_are_for_callers_in_this_process(self, tmp_path: Path) -> None:
        file = tmp_path / "a.png"
        file.write_bytes(b"png")
        items = [b"png", file, str(file), PNG, [0.0, 0.5]]
        body = {"state": "x", "questions": NOUL, "images": items}
        assert parse(body).request.images == (b"png", file, file, PNG, [0.0, 0.5])
        for item in (b"png", file, [0.0]):
            with pytest.raises(BadRequest):
                parse_wire({**body, "images": [item]})
        assert parse_wire({**body, "images": [str(file)]}).request.images == (str(file),)


def test_reply() -> None:
    questions = {
        "n": {"type": "noul"},
        "c": {"type": "choice", "criteria": {"b": None, "a": None}},
        "s": {"type": "score", "criteria": ["calm", None, {"x": 1}]},
    }
    call = parse_wire({"state": "x", "questions": questions, "x_timing": True})
    answers = Answers(
        {
            "n": NoulAnswer(0.1234567890123),
            "c": ChoiceAnswer("a", {"b": 0.25, "a": 0.75}, 0.5),
            "s": ScoreAnswer(1.5, (0.0, 0.5, 0.5), ("calm", None, {"x": 1}), 0.25),
        },
        model="m-1",
        reading="joint",
        input_tokens=12,
        cached_tokens=5,
        truncated_tokens=3,
        timing=Timing(0.1, 0.2, 0.3, 0.4),
    )
    assert reply(call, answers) == {
        "model": "m-1",
        "answers": {
            "n": {"type": "noul", "noul": 0.1234567890123},
            "c": {"type": "choice", "choice": "a", "probabilities": {"b": 0.25, "a": 0.75}, "confidence": 0.5},
            "s": {
                "type": "score",
                "score": 1.5,
                "legend": {"0": "calm", "1": "1", "2": {"x": 1}},
                "probabilities": {"0": 0.0, "1": 0.5, "2": 0.5},
                "confidence": 0.25,
            },
        },
        "usage": {"input_tokens": 12, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 5}},
        "x_reading": "joint",
        "x_truncated": {"state_tokens": 3},
        "x_timing": {
            "prepare": 0.1,
            "queue": 0.2,
            "prefill": 0.3,
            "head": 0.4,
            "tokens_computed": 7,
            "tokens_reused": 5,
        },
    }
