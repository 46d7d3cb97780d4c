"""Many states in one request: in order, each alone, within a window, and gone with their caller."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import quaver
from quaver.errors import EngineFault, Overloaded, TooLong
from quaver.questions import Answers, Request
from quaver.server import ServerConfig
from quaver.testing import FakeDecider
from tests.server.conftest import SYSTEMONE, Http, Running
from tests.server.test_failures import wait_for

PATH = "/v1/systemone/batch"
QUESTIONS = SYSTEMONE["questions"]
BROKEN = [{"type": "image_url", "image_url": "AAAA"}, 3]


def batch(http: Http, states: list[Any], **options: Any) -> Any:
    reply = http.ask({"states": states, "questions": QUESTIONS, **options}, PATH)
    assert reply.status_code == 200, reply.text
    return reply.json()


class Picky(FakeDecider):
    """Raises what it was told to for some states, once each time it was told."""

    def __init__(self, faults: dict[str, list[Exception]]) -> None:
        super().__init__()
        self._faults = faults

    def submit(self, request: Request) -> Future[Answers]:
        if faults := self._faults.get(request.state):
            raise faults.pop()
        return super().submit(request)


def test_every_state_is_answered_as_alone(http: Http) -> None:
    states: list[Any] = ["text", {"a": 1}, None, ["list"], "text"]
    reply = batch(http, states, model="jev-latest")
    alone = [http.ask({"state": state, "questions": QUESTIONS}).json() for state in states]
    assert (reply["model"], reply["results"]) == ("fake-1", alone)
    assert reply["total_usage"]["input_tokens"] == sum(one["usage"]["input_tokens"] for one in alone)


def test_a_state_that_fails_has_its_own_error_in_its_place() -> None:
    http = Http(Picky({"long": [TooLong("3 tokens too long")] * 2, "ill": [EngineFault("not finite")] * 2}))
    results = batch(http, ["fine", BROKEN, "long", "ill", "fine"])["results"]
    for state, result in zip([BROKEN, "long", "ill"], results[1:4], strict=True):
        alone = http.ask({"state": state, "questions": QUESTIONS})
        assert result == {"status": alone.status_code, **alone.json()}
    assert [result.get("status") for result in results] == [None, 422, 400, 500, None]
    metrics = http("GET", "/metrics").text
    assert 'quaver_batch_states_total{status="200"} 2.0' in metrics
    assert 'quaver_batch_states_total{status="422"} 1.0' in metrics


def test_a_bug_in_one_state_is_logged_and_kept_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "quaver.server"):
        results = batch(Http(Picky({"bug": [RuntimeError("secret inside")]})), ["fine", "bug"])["results"]
    assert "answers" in results[0]
    assert (results[1]["status"], results[1]["error"]["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(results) and "secret" in caplog.text


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"states": [], "questions": QUESTIONS}, 422, "states must not be empty"),
        ({"states": ["x"], "questions": {"q": {"type": "choice", "criteria": {}}}}, 422, "1 to 255 options"),
        ({"states": ["x"], "questions": QUESTIONS, "model": "jev-0"}, 400, "Unknown model"),
        ({"states": ["x"], "questions": QUESTIONS, "state": "x"}, 422, "a list of states"),
        ([1], 422, "must be a JSON object"),
    ],
)
def test_a_broken_envelope_is_refused_as_a_whole(http: Http, body: Any, status: int, message: str) -> None:
    refused = http.ask(body, PATH)
    assert refused.status_code == status
    assert message in refused.json()["error"]["message"]
    assert http.decider.requests == []


def test_a_full_queue_is_waited_for() -> None:
    http = Http(Picky({"x": [Overloaded("full", 0.001)] * 50}))
    assert [set(result["answers"]) for result in batch(http, ["x"] * 30)["results"]] == [{"q"}] * 30


def test_a_real_decider_with_a_short_queue_answers_all() -> None:
    with quaver.load(max_queue=3) as decider:
        results = batch(Http(decider), [f"state {n}" for n in range(30)])["results"]
        alone = [decider.systemone({"state": f"state {n}", "questions": QUESTIONS}) for n in (0, 29)]
    given = [result["answers"]["q"]["noul"] for result in results]
    assert [given[0], given[29]] == pytest.approx([one["answers"]["q"]["noul"] for one in alone], abs=1e-6)


def test_the_time_limit_is_that_of_the_whole_batch() -> None:
    gate = threading.Event()
    http = Http(FakeDecider(gate=gate), ServerConfig(batch_window=2))
    results = batch(http, ["x"] * 5, x_timeout_ms=50)["results"]
    assert [(result["status"], result["error"]["code"]) for result in results] == [(504, "expired")] * 5
    assert (len(http.decider.requests), http.decider.dropped) == (2, 2)
    gate.set()


def test_what_was_cut_is_summed_in_the_header() -> None:
    reply = Http(FakeDecider(truncated_tokens=7)).ask({"states": ["x", "y"], "questions": QUESTIONS}, PATH)
    assert [result["x_truncated"] for result in reply.json()["results"]] == [{"state_tokens": 7}] * 2
    assert reply.headers["x-quaver-truncated"] == "14"


def test_a_caller_who_leaves_takes_all_states_along(running: Callable[..., Running]) -> None:
    gate = threading.Event()
    server = running(FakeDecider(gate=gate), ServerConfig(batch_window=8))
    body = json.dumps({"states": ["x"] * 200, "questions": QUESTIONS}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as caller:
        caller.sendall(head.encode() + body)
        wait_for(lambda: len(server.decider.requests) == 8)
    wait_for(lambda: server.decider.dropped == 8)
    gate.set()
    server.stop()
    server.thread.join(10)
    assert len(server.decider.requests) == 8
