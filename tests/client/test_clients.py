"""Both clients against the real app over a fake decider, and the pure halves against what other servers send."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from quaver.client import AsyncClient, Client
from quaver.client.build import build_body, parse_answers, parse_models
from quaver.errors import (
    BadMedia,
    BadQuestion,
    BadRequest,
    Expired,
    Overloaded,
    QuaverError,
    ServerError,
    TooLong,
    Unavailable,
    UnknownModel,
)
from quaver.questions import (
    Abstention,
    Answers,
    Choice,
    ChoiceAnswer,
    LabelRule,
    Noul,
    NoulAnswer,
    Request,
    Score,
    ScoreAnswer,
)
from quaver.server import ServerConfig, create_app
from quaver.testing import FakeDecider

QUESTIONS = {
    "refund": Noul("Refund?", {"true": "asks to be repaid"}),
    "queue": Choice("Where?", {"tech": "bugs", "billing": None}),
    "heat": Score("How angry?", ["calm", None, {"word": "furious"}]),
}


def asynchronous(decider: FakeDecider, config: ServerConfig | None = None, **options: Any) -> AsyncClient:
    transport = httpx.ASGITransport(create_app(decider, config))
    return AsyncClient("http://quaver", transport=transport, **options)


def replying(*responses: httpx.Response | Exception, **options: Any) -> tuple[Client, list[httpx.Request]]:
    """A client of a server that gives these responses in turn, and what it was sent."""
    sent: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        response = responses[len(sent) - 1]
        if isinstance(response, Exception):
            raise response
        return response

    return Client("http://elsewhere", transport=httpx.MockTransport(handle), **options), sent


GOOD = {
    "model": "m",
    "answers": {"q": {"type": "noul", "noul": 0.25}},
    "usage": {"input_tokens": 3, "output_tokens": 0},
}
ASK = {"q": Noul("?")}


def test_answers_equal_the_decider_s_own() -> None:
    decider = FakeDecider(truncated_tokens=4)
    own = decider.decide({"a": 1}, QUESTIONS)
    far = asyncio.run(asynchronous(decider).decide({"a": 1}, QUESTIONS))
    assert dict(far) == dict(own)
    assert list(far) == list(QUESTIONS)
    assert (far.model, far.reading, far.truncated_tokens) == (own.model, own.reading, 4)
    assert far.input_tokens == own.input_tokens > 0
    assert [type(answer) for answer in far.values()] == [NoulAnswer, ChoiceAnswer, ScoreAnswer]
    assert far["heat"].levels == ("calm", None, {"word": "furious"})


def test_how_a_request_is_read_travels_along() -> None:
    decider = FakeDecider()
    request = Request(
        "x",
        ASK,
        reading="joint",
        on_overflow="refuse",
        confidence="max",
        abstain=Abstention(0.1, "answered"),
        labels=LabelRule(min_mass=0.0, prior_correction=False, orders=2),
        image_budget=560,
        cache_salt="tenant",
        priority=-3,
        timeout=20.5,
    )
    assert asyncio.run(asynchronous(decider).ask(request)).reading == "joint"
    assert decider.requests[-1] == request


def test_media_travel_as_data_urls(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(b"jpeg")
    body = build_body(Request("x", ASK, (b"png", file, "AAAA"), (b"wav",), (Path(file),)), None)
    assert body["images"] == [url("image/png", b"png"), url("image/jpeg", b"jpeg"), "AAAA"]
    assert (body["audio"], body["videos"]) == ([url("audio/wav", b"wav")], [url("image/jpeg", b"jpeg")])


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_media_that_cannot_travel(tmp_path: Path) -> None:
    with pytest.raises(BadMedia, match="cannot be read"):
        build_body(Request("x", ASK, (tmp_path / "none.png",)), None)
    with pytest.raises(BadMedia, match="got object"):
        build_body(Request("x", ASK, (object(),)), None)


@pytest.mark.parametrize("state", [float("nan"), {1, 2}, "\ud800", b"x"])
def test_a_state_that_is_no_json_is_a_bad_request(state: object) -> None:
    client, sent = replying()
    with pytest.raises(BadRequest, match="cannot be written as JSON"):
        client.decide(state, ASK)
    assert sent == []


def test_a_zero_is_sent_and_for_the_server_to_refuse() -> None:
    decider = FakeDecider()
    asyncio.run(asynchronous(decider).ask(Request("x", ASK, image_budget=0)))
    assert decider.requests[-1].image_budget == 0
    with pytest.raises(BadRequest, match="x_timeout_ms should be greater than 0"):
        asyncio.run(asynchronous(decider).ask(Request("x", ASK, timeout=0.0)))


def test_only_what_was_set_is_sent() -> None:
    assert build_body(Request("x", {"q": Noul()}), None) == {"state": "x", "questions": {"q": {"type": "noul"}}}


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (BadQuestion("b", ("questions", "q")), BadQuestion),
        (BadMedia("m"), BadMedia),
        (TooLong("t"), TooLong),
        (BadRequest("r", ("state",)), BadRequest),
        (Overloaded("o", 0.01), Overloaded),
        (Unavailable("u"), Unavailable),
        (Expired("e"), Expired),
        (QuaverError("q"), ServerError),
        (RuntimeError("x"), ServerError),
    ],
)
def test_errors_come_back_as_what_they_were(error: Exception, raised: type[QuaverError]) -> None:
    client = asynchronous(FakeDecider(error=error), retries=0)
    with pytest.raises(raised) as caught:
        asyncio.run(client.decide("x", ASK))
    assert type(caught.value) is raised
    if isinstance(error, BadRequest) and error.where:
        assert caught.value.where == error.where
    if not isinstance(error, RuntimeError):
        assert str(caught.value) == str(error)
    if isinstance(error, Overloaded):
        assert caught.value.retry_after == pytest.approx(0.01)


BROKEN = [{"type": "image_url", "image_url": "AAAA"}, 3]


def test_many_states_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaver.client.clients.STATES_PER_CALL", 4)
    decider = FakeDecider()
    states: list[Any] = ["text", {"a": 1}, BROKEN, None, "text", 5]
    far = asyncio.run(asynchronous(decider, model="jev-latest").decide_many(states, QUESTIONS))
    assert isinstance(far[2], BadRequest) and far[2].where == ("state", 1)
    for state, answers in zip(states, far, strict=True):
        if state is not BROKEN:
            assert isinstance(answers, Answers)
            assert dict(answers) == dict(decider.decide(state, QUESTIONS))
    assert asyncio.run(asynchronous(decider).decide_many([], QUESTIONS)) == []


def test_a_batch_that_cannot_be_asked_is_an_exception() -> None:
    with pytest.raises(UnknownModel):
        asyncio.run(asynchronous(FakeDecider(), model="other").decide_many(["x"], ASK))


def test_a_batch_through_the_synchronous_client() -> None:
    late = {"status": 504, "error": {"message": "late", "type": "api_error", "param": None, "code": "expired"}}
    abstained = {**GOOD, "answers": {"q": {"type": "noul", "noul": 0.5, "x_abstain": True}}}
    client, sent = replying(httpx.Response(200, json={"model": "m", "results": [late, GOOD, abstained]}))
    results = client.decide_many(["a", "b", "c"], ASK, images=[b"png"])
    assert isinstance(results[0], Expired)
    assert [result["q"] for result in results[1:]] == [NoulAnswer(0.25), NoulAnswer(0.5)]
    assert [result.abstained for result in results[1:]] == [None, {"q": True}]
    body = json.loads(sent[0].content)
    assert (sent[0].url.path, body["states"]) == ("/v1/systemone/batch", ["a", "b", "c"])
    assert body["images"] == [url("image/png", b"png")]


@pytest.mark.parametrize("results", [None, {}, [GOOD], [GOOD, 3], [GOOD, {}]])
def test_a_batch_reply_that_is_none(results: object) -> None:
    client, _ = replying(httpx.Response(200, json={"results": results}))
    with pytest.raises(ServerError):
        client.decide_many(["a", "b"], ASK)


def test_keys_and_models() -> None:
    config = ServerConfig(api_keys=("k",))
    assert "jev-latest" in asyncio.run(asynchronous(FakeDecider(), config, api_key="k").models())
    with pytest.raises(ServerError, match="not valid") as caught:
        asyncio.run(asynchronous(FakeDecider(), config, api_key="wrong").models())
    assert caught.value.status == 401
    with pytest.raises(UnknownModel, match="Known models"):
        asyncio.run(asynchronous(FakeDecider(), model="other").decide("x", ASK))


def test_the_synchronous_client() -> None:
    client, sent = replying(
        httpx.Response(200, json=GOOD), httpx.Response(200, json={"data": [{"id": "m"}]}), api_key="k"
    )
    with client:
        answers = client.decide("x", ASK)
        assert client.models() == ["m"]
    assert answers["q"] == NoulAnswer(0.25)
    assert (answers.reading, answers.cached_tokens) == ("independent", 0)
    assert [request.url.path for request in sent] == ["/v1/systemone", "/v1/models"]
    assert {request.headers["authorization"] for request in sent} == {"Bearer k"}


@pytest.mark.parametrize("status", [429, 503, 529])
def test_load_is_waited_out(status: int) -> None:
    busy = httpx.Response(status, headers={"retry-after-ms": "1"}, json={"detail": {"message": "busy"}})
    client, sent = replying(busy, busy, httpx.Response(200, json=GOOD))
    assert client.decide("x", ASK)["q"] == NoulAnswer(0.25)
    assert len(sent) == 3
    client, sent = replying(busy, busy, busy)
    with pytest.raises(Unavailable if status == 503 else Overloaded, match="busy"):
        client.decide("x", ASK)
    assert len(sent) == 3


def test_what_is_not_to_be_soon_is_not_waited_for() -> None:
    client, sent = replying(httpx.Response(429, headers={"retry-after": "3600"}, json={"detail": "tomorrow"}))
    with pytest.raises(Overloaded, match="tomorrow") as caught:
        client.decide("x", ASK)
    assert (len(sent), caught.value.retry_after) == (1, 3600)


def test_the_asynchronous_client_waits_too() -> None:
    decider = FakeDecider(error=Overloaded("full", 0.001))
    client = asynchronous(decider, retries=10_000)

    async def recover() -> None:
        asking = asyncio.create_task(client.decide("x", ASK))
        await asyncio.sleep(0.002)
        decider.error = None
        await asking

    asyncio.run(recover())


def test_other_errors_are_not_tried_again() -> None:
    client, sent = replying(httpx.Response(400, json={"detail": "no"}))
    with pytest.raises(BadRequest, match="no"):
        client.decide("x", ASK)
    assert len(sent) == 1


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("late"), httpx.DecodingError("x")])
def test_no_server(error: Exception) -> None:
    client, _ = replying(error)
    with pytest.raises(Unavailable, match="no answer from http://elsewhere"):
        client.decide("x", ASK)


def test_gateways_that_do_not_know_what_was_cached() -> None:
    usage = {"input_tokens": 3, "output_tokens": 0, "input_tokens_details": None}
    assert parse_answers(httpx.Response(200, json={**GOOD, "usage": usage}), ASK).cached_tokens == 0


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(500, text="oops"), "oops"),
        (httpx.Response(502, json=["x"]), '["x"]'),
        (httpx.Response(200, text="<html>"), "not a JSON object"),
        (httpx.Response(200, json={"answers": {}}), "not a System One reply"),
        (httpx.Response(200, json={**GOOD, "answers": {"other": {}}}), "not a System One reply"),
        (httpx.Response(200, json={**GOOD, "answers": []}), "not a System One reply"),
    ],
)
def test_replies_that_are_none(response: httpx.Response, message: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse_answers(response, ASK)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "text"}, "text"),
        ({"error": {"message": "inner"}}, "inner"),
        ({"detail": "plain"}, "plain"),
        ({"detail": {"message": "object"}}, "object"),
        ({"detail": [{"loc": ["body", "state"], "msg": "listed"}]}, "listed"),
        ({"detail": [{"loc": None, "msg": "placeless"}]}, "placeless"),
        ({"message": "outer"}, "outer"),
        ({"other": 1}, '{"other":1}'),
    ],
)
def test_messages_in_every_shape(body: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_models(httpx.Response(422, json=body))
    assert str(caught.value) == message


def test_imports_without_torch_or_a_server() -> None:
    code = "import sys, quaver.client; assert not {'torch', 'transformers', 'fastapi', 'uvicorn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
