"""Encodings, sizes, forms, and bodies meant to hurt. After each, the next request is answered."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
import zstandard

from quaver.server import ServerConfig
from quaver.testing import FakeDecider
from tests.server.conftest import SYSTEMONE, Http

PLAIN = json.dumps(SYSTEMONE).encode()
ENCODED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}


def send(http: Http, content: bytes, encoding: str) -> Any:
    return http("POST", "/v1/systemone", content=content, headers={"content-encoding": encoding})


@pytest.mark.parametrize("encoding", ENCODED)
def test_encodings(http: Http, encoding: str) -> None:
    assert send(http, ENCODED[encoding](PLAIN), encoding).json() == http.ask().json()


def test_zstd_without_a_content_size(http: Http) -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    assert send(http, stream.compress(PLAIN) + stream.flush(), "zstd").status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("content", [b"not compressed", b""])
def test_a_body_that_is_not_what_it_says(http: Http, encoding: str, content: bytes) -> None:
    assert send(http, content, encoding).status_code in (400, 422)


def test_unknown_encoding(http: Http) -> None:
    refused = send(http, PLAIN, "br")
    assert refused.status_code == 415
    assert "use zstd, gzip" in refused.json()["detail"]["message"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_not_unpacked(encoding: str) -> None:
    http = Http(FakeDecider(), ServerConfig(max_body_bytes=1_000_000))
    bomb = ENCODED[encoding](bytes(200_000_000))
    assert len(bomb) < 1_000_000
    assert send(http, bomb, encoding).status_code == 413
    assert http.ask().status_code == 200


def test_a_zstd_frame_that_asks_for_gigabytes_of_window(http: Http) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert send(http, stream.compress(PLAIN) + stream.flush(), "zstd").status_code == 400


def test_size_limit_with_and_without_a_length() -> None:
    http = Http(FakeDecider(), ServerConfig(max_body_bytes=len(PLAIN)))
    assert http("POST", "/v1/systemone", content=PLAIN).status_code == 200
    too_long = http("POST", "/v1/systemone", content=PLAIN + b" ")
    assert too_long.status_code == 413
    assert too_long.json()["detail"]["error_type"] == "api_usage_error"

    async def chunks():
        yield PLAIN
        yield b" "

    assert http("POST", "/v1/systemone", content=chunks()).status_code == 413


def test_a_form_with_files(http: Http) -> None:
    body = {
        "state": "<one> or <two>",
        "questions": SYSTEMONE["questions"],
        "assets": {"<one>": {"type": "image", "part": "asset-0"}, "<two>": {"type": "image", "part": "asset-1"}},
    }
    files = {
        "request": ("request", json.dumps(body), "application/json"),
        "asset-0": ("asset-0", b"\x89PNG\x00\xff", "image/png"),
        "asset-1": ("asset-1", b"\xff\xd8\xff\r\n", "image/jpeg"),
    }
    assert http("POST", "/v1/systemone", files=files).status_code == 200
    request = http.decider.requests[-1]
    assert request.state == "[image 1] or [image 2]"
    assert request.images == (b"\x89PNG\x00\xff", b"\xff\xd8\xff\r\n")


def form(*parts: tuple[bytes, bytes], end: bytes = b"--b--\r\n") -> bytes:
    """A form as RFC 7578 writes it, of disposition parameters and contents."""
    texts = [b"--b\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % part for part in parts]
    return b"".join(texts) + end


def send_form(http: Http, content: bytes, more: str = "") -> Any:
    return http(
        "POST", "/v1/systemone", content=content, headers={"content-type": f"multipart/form-data; boundary=b{more}"}
    )


def test_a_file_without_a_file_name_stays_as_it_was_sent(http: Http) -> None:
    body = {**SYSTEMONE, "state": "<a>", "assets": {"<a>": {"type": "image", "part": "é"}}}
    image = bytes(range(256))
    reply = send_form(http, form((b'name="request"', json.dumps(body).encode()), ('name="é"'.encode(), image)))
    assert reply.status_code == 200, reply.text
    assert http.decider.requests[-1].images == (image,)


@pytest.mark.parametrize("charset", ["", "; charset=latin-1", "; charset=utf-16"])
def test_the_json_of_a_form_is_utf8_whatever_it_says(http: Http, charset: str) -> None:
    state = json.dumps({**SYSTEMONE, "state": "café"}, ensure_ascii=False)
    assert send_form(http, form((b'name="request"', state.encode())), charset).status_code == 200
    assert http.decider.requests[-1].state == "café"
    refused = send_form(http, form((b'name="request"', state.encode("latin-1"))), charset)
    assert refused.status_code == 422 and "not UTF-8" in refused.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (form((b'name="request"', PLAIN), end=b""), "ends before its last boundary"),
        (form((b"x=y", PLAIN)), "a part without a name"),
        (form((b'name="\xff"', PLAIN)), "whose name is not UTF-8"),
        (form(*((b'name="%d"' % i, b"x") for i in range(130))), "more than 129 parts"),
        (form(), "no part named request"),
    ],
)
def test_forms_that_are_none(http: Http, content: bytes, message: str) -> None:
    refused = send_form(http, content)
    assert refused.status_code == 400 and message in refused.text


@pytest.mark.parametrize(
    ("files", "status", "message"),
    [
        ({"other": ("o", "{}")}, 400, "no part named request"),
        ({"request": ("r", "{")}, 422, "not JSON"),
        ({"request": ("r", PLAIN), "stray": ("s", b"x")}, 400, "must be named by one asset"),
        ([("request", ("r", PLAIN)), ("request", ("r", PLAIN))], 400, "two parts named"),
    ],
)
def test_forms_that_do_not_fit(http: Http, files: Any, status: int, message: str) -> None:
    refused = http("POST", "/v1/systemone", files=files)
    assert refused.status_code == status
    assert message in refused.text


def test_a_broken_form(http: Http) -> None:
    for content_type in ("multipart/form-data", "multipart/form-data; boundary=x"):
        refused = http("POST", "/v1/systemone", content=b"--y\r\n", headers={"content-type": content_type})
        assert refused.status_code == 400


HOSTILE = {
    "3,000 nested arrays": b"[" * 3000 + b"]" * 3000,
    "a million nested arrays": b"[" * 1_000_000,
    "nested in the state": b'{"state":' + b"[" * 500 + b"]" * 500 + b',"questions":{"q":{"type":"noul"}}}',
    "surrogate in the state": b'{"state":"\\ud800","questions":{"q":{"type":"noul"}}}',
    "surrogate in an id": b'{"state":"x","questions":{"\\udfff":{"type":"noul"}}}',
    "surrogate in an option": b'{"state":"x","questions":{"q":{"type":"choice","criteria":{"\\ud800":null}}}}',
    "surrogate in the model": b'{"state":"x","model":"\\ud800","questions":{"q":{"type":"noul"}}}',
    "NaN": b'{"state":NaN,"questions":{"q":{"type":"noul"}}}',
    "1e999": b'{"state":1e999,"questions":{"q":{"type":"noul"}}}',
    "10,000 digits": b'{"state":' + b"9" * 10_000 + b',"questions":{"q":{"type":"noul"}}}',
    "a key twice": b'{"state":"x","questions":{"q":{"type":"noul"},"q":{"type":"noul"}}}',
    "not UTF-8": b'{"state":"\xff\xfe","questions":{"q":{"type":"noul"}}}',
    "UTF-16": json.dumps(SYSTEMONE).encode("utf-16"),
    "nothing": b"",
    "null": b"null",
    "100,000 options": json.dumps(
        {"state": "x", "questions": {"q": {"type": "choice", "criteria": [str(i) for i in range(100_000)]}}}
    ).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
def test_hostile_bodies_get_a_clear_4xx(http: Http, name: str, path: str) -> None:
    started = time.perf_counter()
    refused = http("POST", path, content=HOSTILE[name])
    assert refused.status_code in (400, 422)
    assert refused.json()["error"]["message"]
    assert time.perf_counter() - started < 5
    assert http.ask().status_code == 200


def test_five_million_characters_are_answered(http: Http) -> None:
    for state in ("x" * 5_000_000, "é" * 2_500_000, ["word"] * 700_000):
        assert http.ask({**SYSTEMONE, "state": state}).status_code == 200
    assert http.decider.requests[0].state == "x" * 5_000_000


def test_forty_options_sum_to_one(http: Http) -> None:
    criteria = {f"option {i}": None for i in range(40)}
    answer = http.ask({"state": "x", "questions": {"q": {"type": "choice", "criteria": criteria}}}).json()["answers"][
        "q"
    ]
    assert list(answer["probabilities"]) == list(criteria)
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-12)
    assert answer["choice"] == max(criteria, key=answer["probabilities"].__getitem__)


def test_true_and_the_text_true_stay_apart(http: Http) -> None:
    choices = [{"value": True}, {"value": "true"}, {"value": False}, {"value": "True"}]
    body = {"input": "x", "questions": [{"type": "choice", "instructions": "?", "choices": choices}]}
    answer = http.ask(body).json()["answers"][0]
    assert [item["value"] for item in answer["probabilities"]] == [True, "true", False, "True"]
    assert [type(item["value"]) for item in answer["probabilities"]] == [bool, str, bool, str]
    assert sum(item["probability"] for item in answer["probabilities"]) == pytest.approx(1)


def test_odd_names_come_back_byte_for_byte(http: Http) -> None:
    names = ["환불 요청", "🙂 기타", "e\u0301", "\u0000", "", " ", "a.b/c", "\u2028", '"\\']
    body = {"state": "x", "questions": {name: {"type": "choice", "criteria": names} for name in names}}
    answers = http.ask(body).json()["answers"]
    assert list(answers) == names
    assert all(list(answer["probabilities"]) == names for answer in answers.values())
