"""A medium that cannot be had, or that the model cannot perceive, is refused where it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asking import ASKED, PICTURE, QUESTIONS, TEXT, data_url, message, part, post, text
from vectors import FLASH

import quaver


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/v1/systemone", {"images": ["http://169.254.169.254/a.png"]}, "images.0", "not among the hosts"),
        ("/v1/systemone", {"images": [PICTURE, "http://localhost/"]}, "images.1", "not among the hosts"),
        ("/v1/systemone", {"images": ["../config.json"]}, "images.0", "not a file in the folder"),
        ("/v1/systemone", {"state": [text("x"), part("file:///etc/passwd")]}, "state.1", "not a file in the folder"),
        ("/v1/systemone", {"state": {"a": [part("AAAA")]}}, "state.a.0", "cannot be decoded"),
        ("/v1/systemone", {"files": [data_url(PICTURE), "data:image/png;base64,AAAA"]}, "files.1", "cannot be decoded"),
        (
            "/v1/systemone",
            {"state": "<a>", "assets": {"<a>": {"type": "image", "data_base64": "AAAA"}}},
            "assets.<a>",
            "cannot be decoded",
        ),
        ("/v1/decisions", {"images": ["ftp://x"]}, "images.0", "ftp: addresses are not read"),
        (
            "/v1/decisions",
            message({"type": "input_image", "image_url": "https://x/"}),
            "input.0.content.1",
            "not among the hosts",
        ),
    ],
)
def test_a_medium_that_cannot_be_had_is_named_where_it_stands(
    flash: httpx.Client, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    common = {"state": TEXT, "questions": QUESTIONS} if path.endswith("one") else {"input": TEXT, "questions": ASKED}
    reply = flash.post(path, json={**common, **body})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "bad_media", param)
    assert message in error["message"] and param.split(".")[-1] in error["message"]


def test_a_server_without_options_says_which_one_would_allow_it(serving: Callable[..., Any]) -> None:
    with httpx.Client(base_url=serving(quaver.load(str(FLASH))).url, timeout=60) as client:
        for place, option in (("https://x.test/a.png", "--allow-media-hosts"), ("file:a.png", "--allow-media-dir")):
            reply = client.post("/v1/systemone", json={"state": TEXT, "questions": QUESTIONS, "images": [place]})
            assert reply.status_code == 400 and option in reply.json()["error"]["message"]


#: Bodies that carry a medium of a kind, where the error must lead, and the parts of a form.
SLOTS: dict[str, list[tuple[str, dict[str, Any], str, dict[str, bytes]]]] = {
    "images": [
        ("/v1/systemone", {"images": ["AAAA"]}, "images.0", {}),
        ("/v1/systemone", {"files": ["data:image/png;base64,AAAA"]}, "files.0", {}),
        ("/v1/systemone", {"state": [text("x"), part("AAAA")]}, "state.1", {}),
        ("/v1/systemone", {"state": [{"role": "user", "content": [part("AAAA")]}]}, "state.0.content.0", {}),
        (
            "/v1/systemone",
            {"state": "<a>", "assets": {"<a>": {"type": "image", "data_base64": "AA"}}},
            "assets.<a>",
            {},
        ),
        (
            "/v1/systemone",
            {"state": "<a>", "assets": {"<a>": {"type": "image", "part": "p"}}},
            "assets.<a>",
            {"p": b"x"},
        ),
        ("/v1/decisions", {"images": ["AAAA"]}, "images.0", {}),
        ("/v1/decisions", {"files": ["data:image/png;base64,AAAA"]}, "files.0", {}),
        ("/v1/decisions", message({"type": "input_image", "image_url": "AAAA"}), "input.0.content.1", {}),
        (
            "/v1/decisions",
            {"questions": [{**ASKED[0], "instructions": [{"type": "input_image", "image_url": "AAAA"}]}]},
            "questions.0.instructions.0",
            {},
        ),
    ],
    "audio": [
        ("/v1/systemone", {"audio": ["AAAA"]}, "audio.0", {}),
        ("/v1/systemone", {"files": ["data:audio/wav;base64,AAAA"]}, "files.0", {}),
        ("/v1/systemone", {"state": [{"type": "audio_url", "audio_url": {"url": "AAAA"}}]}, "state.0", {}),
        ("/v1/systemone", {"state": [{"type": "input_audio", "input_audio": {"data": "AAAA"}}]}, "state.0", {}),
        ("/v1/decisions", {"audio": ["AAAA"]}, "audio.0", {}),
        ("/v1/decisions", message({"type": "input_audio", "input_audio": {"data": "AAAA"}}), "input.0.content.1", {}),
    ],
    "videos": [
        ("/v1/systemone", {"videos": ["AAAA"]}, "videos.0", {}),
        ("/v1/systemone", {"files": ["data:video/mp4;base64,AAAA"]}, "files.0", {}),
        ("/v1/systemone", {"state": [{"type": "video_url", "video_url": "AAAA"}]}, "state.0", {}),
        ("/v1/decisions", {"videos": ["AAAA"]}, "videos.0", {}),
        ("/v1/decisions", message({"type": "input_video", "video_url": "AAAA"}), "input.0.content.1", {}),
    ],
}


@pytest.mark.parametrize("kind", SLOTS)
def test_a_model_that_cannot_perceive_a_medium_refuses_it_in_every_slot(
    reader: httpx.Client, flash: httpx.Client, kind: str
) -> None:
    verb = {"images": "cannot see images", "audio": "cannot hear", "videos": "cannot watch videos"}[kind]
    for client in (reader, flash) if kind == "audio" else (reader,):
        for path, body, param, files in SLOTS[kind]:
            asked = {"questions": QUESTIONS if path.endswith("one") else ASKED}
            text_of = {"state": TEXT} if path.endswith("one") else {"input": TEXT}
            reply = post(client, path, {**text_of, **asked, **body}, files)
            error = reply.json()["error"]
            assert (reply.status_code, error["code"], error["param"]) == (400, "bad_media", param), (path, body)
            assert verb in error["message"]
