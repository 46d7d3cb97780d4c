"""Keys, load, faults, callers who leave, and stopping: every accepted request ends in an answer or an error."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable

import httpx
import pytest
import typesafe_sdk

from quaver.errors import BadMedia, BadRequest, EngineFault, Expired, Overloaded, QuaverError, TooLong, Unavailable
from quaver.server import ServerConfig
from quaver.testing import FakeDecider
from tests.server.conftest import DECISIONS, SYSTEMONE, Http, Running

LOCKED = ServerConfig(api_keys=("other-tenant", "sécret"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"authorization": "Basic c2VjcmV0"}, 403),
        ({"authorization": "Bearer "}, 403),
        ({"authorization": "Bearer wrong"}, 401),
        ({"x-api-key": "wrong"}, 401),
        ({"x-api-key": "sécret".encode()}, 200),
        ({"authorization": "Bearer sécret".encode()}, 200),
        ({"authorization": "bearer sécret".encode(), "x-api-key": "other"}, 200),
    ],
)
def test_keys(headers: dict[str, str | bytes], status: int) -> None:
    http = Http(FakeDecider(), LOCKED)
    reply = http.ask(headers=headers)
    assert reply.status_code == status
    assert http("GET", "/v1/models", headers=headers).status_code == status
    if status != 200:
        assert reply.json()["detail"]["error_type"] == reply.json()["error"]["type"] == "authentication_error"


def test_keys_keep_their_caches_apart_when_asked_to() -> None:
    def salts(config: ServerConfig, path: str, **body: object) -> list[str]:
        http = Http(FakeDecider(), config)
        for key in config.api_keys:
            assert (
                http.ask({"questions": SYSTEMONE["questions"], **body}, path, headers={"x-api-key": key}).status_code
                == 200
            )
        return [request.cache_salt for request in http.decider.requests]

    keys = ("one", "two", "three")
    for path, body in (("/v1/systemone", {"state": "x"}), ("/v1/systemone/batch", {"states": ["x"]})):
        shared = salts(ServerConfig(api_keys=keys), path, cache_salt="s", **body)
        assert shared == ["s"] * 3
        apart = salts(ServerConfig(api_keys=keys, salt_by_key=True), path, cache_salt="s", **body)
        assert len(set(apart)) == 3
        assert all(salt.endswith(":s") and not any(key in salt for key in keys) for salt in apart)
        assert apart != salts(ServerConfig(api_keys=keys, salt_by_key=True), path, **body)


def test_keys_cannot_be_kept_apart_without_keys() -> None:
    with pytest.raises(BadRequest, match="give at least one"):
        ServerConfig(salt_by_key=True)


def test_health_needs_no_key() -> None:
    http = Http(FakeDecider(), LOCKED)
    assert [http("GET", path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


def test_without_a_key_any_header_is_fine(http: Http) -> None:
    assert http.ask(headers={"authorization": "Bearer anything"}).status_code == 200


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("error", "systemone", "decisions"),
    [
        (BadMedia("this model cannot see"), 400, 400),
        (TooLong("too long by 3 tokens"), 400, 400),
        (Overloaded("the queue is full", retry_after=2.5), 429, 429),
        (Unavailable("the engine is stopping"), 503, 503),
        (Expired("the time is over"), 504, 504),
        (EngineFault("non-finite logits"), 500, 500),
        (QuaverError("something else"), 500, 500),
    ],
)
def test_errors_of_the_decider(error: Exception, systemone: int, decisions: int, early: bool) -> None:
    http = Http(FakeDecider(error=error, early=early))
    one, two = http.ask(SYSTEMONE), http.ask(DECISIONS)
    assert (one.status_code, two.status_code) == (systemone, decisions)
    assert one.json()["detail"]["message"] == two.json()["error"]["message"] == str(error)
    assert one.json()["error"] and "detail" not in two.json()


def test_load_says_when_to_come_back() -> None:
    reply = Http(FakeDecider(error=Overloaded("full", retry_after=2.5))).ask()
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("3", "2500")
    assert reply.json()["detail"]["error_type"] == "rate_limit_error"


def test_an_unforeseen_exception_is_a_500_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    http = Http(FakeDecider(error=RuntimeError("secret inside")))
    with caplog.at_level(logging.ERROR, "quaver.server"):
        reply = http.ask()
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert reply.json()["error"]["code"] == "internal_error"
    assert reply.headers["x-request-id"] in caplog.text
    assert 'status="500"} 1.0' in http("GET", "/metrics").text


@pytest.mark.parametrize("body", [SYSTEMONE, DECISIONS])
def test_a_request_whose_time_is_over_is_dropped(body: dict[str, object]) -> None:
    gate = threading.Event()
    http = Http(FakeDecider(gate=gate))
    reply = http.ask({**body, "x_timeout_ms": 50})
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "expired")
    assert "no answer within 0.05 s" in reply.json()["error"]["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert http.decider.dropped == 1
    gate.set()
    assert http.ask({**body, "x_timeout_ms": 20_000}).status_code == 200


def test_more_requests_than_may_be_held(running: Callable[..., Running]) -> None:
    gate = threading.Event()
    server = running(FakeDecider(gate=gate), ServerConfig(max_in_flight=1))
    first = Asking(server)
    wait_for(lambda: len(server.decider.requests) == 1)
    second = httpx.post(f"{server.url}/v1/systemone", json=SYSTEMONE)
    assert (second.status_code, second.headers["retry-after"]) == (429, "1")
    gate.set()
    assert first.reply().status_code == 200
    assert httpx.post(f"{server.url}/v1/systemone", json=SYSTEMONE).status_code == 200


def test_a_caller_who_leaves_takes_the_job_along(running: Callable[..., Running]) -> None:
    gate = threading.Event()
    server = running(FakeDecider(gate=gate))
    blocker = Asking(server)
    wait_for(lambda: len(server.decider.requests) == 1)
    body = json.dumps(SYSTEMONE).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as caller:
        caller.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: len(server.decider.requests) == 2)
    wait_for(lambda: server.decider.dropped == 1)
    gate.set()
    assert blocker.reply().status_code == 200
    assert 'status="499"} 1.0' in httpx.get(f"{server.url}/metrics").text


def test_a_caller_who_leaves_in_the_middle_of_a_body_is_no_fault(
    running: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    server = running(FakeDecider())
    with socket.create_connection(("127.0.0.1", server.port)) as caller:
        caller.sendall(b'POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"state":')
        wait_for(lambda: "quaver_requests_in_flight 1.0" in httpx.get(f"{server.url}/metrics").text)
    wait_for(lambda: 'status="499"} 1.0' in httpx.get(f"{server.url}/metrics").text)
    assert not caplog.records
    assert httpx.post(f"{server.url}/v1/systemone", json=SYSTEMONE).status_code == 200


def test_stopping_answers_what_was_accepted(running: Callable[..., Running]) -> None:
    gate = threading.Event()
    server = running(FakeDecider(gate=gate))
    waiting = [Asking(server) for _ in range(3)]
    wait_for(lambda: len(server.decider.requests) == 3)
    server.stop()
    time.sleep(0.3)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz")
    assert server.decider.ready
    gate.set()
    assert [asking.reply().status_code for asking in waiting] == [200] * 3
    server.thread.join(10)
    assert not server.thread.is_alive()
    assert not server.decider.ready


def test_a_slow_request_does_not_hold_up_the_others(running: Callable[..., Running]) -> None:
    server = running(FakeDecider())
    big = Asking(server, {**SYSTEMONE, "state": ["word"] * 1_000_000})
    answered = 0
    while big.waits():
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        answered += 1
    assert big.reply().status_code == 200
    assert answered > 3


def test_images_of_the_real_sdk_arrive(running: Callable[..., Running]) -> None:
    server = running(FakeDecider())
    image = typesafe_sdk.Image(b"\x89PNG\r\n\x1a\n rest of a picture")
    with typesafe_sdk.TypeSafeClient(api_key="any", base_url=server.url) as client:
        client.system_one(state=["Look:", image], questions={"q": typesafe_sdk.Noul(instructions="Broken?")})
    request = server.decider.requests[-1]
    assert request.state == ["Look:", "[image 1]"]
    assert request.images == (b"\x89PNG\r\n\x1a\n rest of a picture",)


class Asking:
    """A request that waits in a thread of its own."""

    def __init__(self, server: Running, body: object = SYSTEMONE) -> None:
        self._url, self._body = f"{server.url}/v1/systemone", body
        self._reply: httpx.Response | None = None
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        self._reply = httpx.post(self._url, json=self._body, timeout=30)

    def waits(self) -> bool:
        return self._thread.is_alive()

    def reply(self) -> httpx.Response:
        self._thread.join(30)
        assert self._reply is not None
        return self._reply


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
