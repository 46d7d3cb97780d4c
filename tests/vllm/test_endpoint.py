"""Our wire in vLLM's server: its paths, its refusals, its doors, and clients who leave."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from fastapi.testclient import TestClient

from quaver.server import ServerConfig, create_app
from quaver.server.routes import OTHER_PATHS
from tests.vllm.conftest import KEY
from tests.vllm.replies import differences

NOUL = {"type": "noul", "instructions": "Is it late?"}
BODY = {"state": "The parcel came late.", "questions": {"late": NOUL}}
DECISIONS = {"input": "The parcel came late.", "questions": [{**NOUL, "type": "predicate", "name": "late"}]}


@pytest.fixture(scope="module")
def own(ours: Any, chat_folder: Path) -> TestClient:
    """The same model behind our own server, which also answers to vLLM's name of it."""
    app = create_app(ours, ServerConfig(api_keys=(KEY,), aliases=(str(chat_folder),)))
    return TestClient(app, headers={"authorization": f"Bearer {KEY}"}, raise_server_exceptions=False)


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions", *OTHER_PATHS])
def test_both_dialects_on_every_path(chat: httpx.Client, own: TestClient, path: str) -> None:
    for body in (BODY, DECISIONS):
        reply = chat.post(path, json=body)
        assert reply.status_code == 200
        assert differences(reply.json(), own.post(path, json=body).json(), 1e-4) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/systemone/batch", {"states": ["x", {"a": 1}], "questions": {"late": NOUL}}),
        ("/client/v4/accounts/me/ai/run/@cf/jev-latest", BODY),
    ],
)
def test_batches_and_envelopes(chat: httpx.Client, own: TestClient, path: str, body: dict[str, Any]) -> None:
    assert differences(chat.post(path, json=body).json(), own.post(path, json=body).json(), 1e-4) == []


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


PLAIN = text(BODY)
HOSTILE: dict[str, tuple[bytes, dict[str, str]]] = {
    "nothing": (b"", {}),
    "not JSON": (b"{", {}),
    "a list": (b"[]", {}),
    "not a number": (b'{"state": NaN}', {}),
    "a key twice": (b'{"state": "a", "state": "b"}', {}),
    "deep": (b'{"state": ' + b"[" * 5000 + b"]" * 5000 + b"}", {}),
    "half a surrogate": (b'{"state": "\\ud800", "questions": {"q": {"type": "noul"}}}', {}),
    "not UTF-8": (b'{"state": "\xff"}', {}),
    "no questions": (text({"state": "x", "questions": {}}), {}),
    "unknown type": (text({"state": "x", "questions": {"q": {"type": "box"}}}), {}),
    "256 options": (
        text({"state": "x", "questions": {"q": {"type": "choice", "criteria": [str(i) for i in range(256)]}}}),
        {},
    ),
    "a score of a map": (text({"state": "x", "questions": {"q": {"type": "score", "criteria": {"a": 1}}}}), {}),
    "decisions, unknown field": (text({**DECISIONS, "joint": True}), {}),
    "unknown model": (text({**BODY, "model": "nobody"}), {}),
    "unknown model, decisions": (text({**DECISIONS, "model": "nobody"}), {}),
    "a picture": (text({**BODY, "images": ["data:image/png;base64,AAAA"]}), {}),
    "joint": (text({**BODY, "x_reading": "joint"}), {}),
    "too long": (text({**BODY, "state": "word " * 9000, "x_on_overflow": "refuse"}), {}),
    "questions too long": (text({"state": "x", "questions": {"q": {**NOUL, "instructions": "w " * 9000}}}), {}),
    "no such encoding": (PLAIN, {"content-encoding": "br"}),
    "not gzip": (PLAIN, {"content-encoding": "gzip"}),
    "a bomb": (gzip.compress(bytes(40_000_000)), {"content-encoding": "gzip"}),
    "a form without a request": (b"--x\r\n\r\n--x--", {"content-type": "multipart/form-data; boundary=x"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_as_our_own_server_refuses(chat: httpx.Client, own: TestClient, name: str) -> None:
    content, headers = HOSTILE[name]
    refused, expected = (client.post("/v1/systemone", content=content, headers=headers) for client in (chat, own))
    assert 400 <= refused.status_code < 500
    assert (refused.status_code, refused.json()) == (expected.status_code, expected.json())
    assert chat.post("/v1/systemone", json=BODY).status_code == 200


def test_compressed_bodies(chat: httpx.Client) -> None:
    plain = chat.post("/v1/systemone", json=BODY).json()
    for encoding, compress in (("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)):
        reply = chat.post("/v1/systemone", content=compress(PLAIN), headers={"content-encoding": encoding})
        assert differences(reply.json(), plain, 1e-5) == []


@pytest.mark.parametrize("path", ["/v1/systemone", "/systemone", "/v1/models"])
def test_our_door(chat: httpx.Client, path: str) -> None:
    """In the dialect's words, also where vLLM would stand before it."""
    ask = httpx.get if path.endswith("models") else httpx.post
    url = chat.base_url.join(path)
    missing, wrong = ask(url, timeout=60), ask(url, headers={"x-api-key": "wrong"}, timeout=60)
    assert (missing.status_code, wrong.status_code) == (403, 401)
    assert missing.json()["detail"]["error_type"] == wrong.json()["detail"]["error_type"] == "authentication_error"


def test_vllms_door(chat: httpx.Client) -> None:
    assert httpx.post(chat.base_url.join("/v1/completions"), json={}, timeout=60).status_code == 401
    assert chat.post("/v1/completions", json={"model": "nobody", "prompt": "x"}).status_code == 404


def test_the_list_of_models_is_ours_and_vllms(chat: httpx.Client, chat_folder: Path) -> None:
    listed = chat.get("/v1/models").json()
    served = chat.post("/v1/systemone", json=BODY).json()["model"]
    cards = {card["id"]: card for card in listed["data"]}
    assert cards[str(chat_folder)]["max_model_len"] == 8192
    assert {served, "jev-latest", str(chat_folder)} <= {model["name"] for model in listed["models"]}
    assert all(chat.post("/v1/systemone", json={**BODY, "model": name}).status_code == 200 for name in cards)


def test_health_and_ids(chat: httpx.Client) -> None:
    assert chat.get("/health").status_code == 200
    assert chat.get("/healthz").json() == {"ok": True}
    assert chat.get("/readyz").json() == {"ready": True}
    reply = chat.post("/v1/systemone", json=BODY, headers={"x-request-id": "mine"})
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"] == "mine"


def metric(chat: httpx.Client, start: str) -> float:
    lines = chat.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start))


def test_vllms_metrics_have_ours_among_them(chat: httpx.Client) -> None:
    before = metric(chat, 'quaver_requests_total{dialect="systemone",status="200"}')
    chat.post("/v1/systemone", json=BODY)
    assert metric(chat, 'quaver_requests_total{dialect="systemone",status="200"}') == before + 1
    assert metric(chat, "quaver_decider_tokens_computed_total") > 0
    assert metric(chat, "vllm:prompt_tokens_total") > 0


#: Prompts that take vLLM long: seconds at least.
MANY = {
    "state": "word " * 4000,
    "questions": {f"q{i}": {"type": "noul", "instructions": f"{i}?"} for i in range(200)},
    "cache_salt": "never twice",
}


def eventually(holds: Callable[[], bool], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.1)
    return held


def test_a_client_who_leaves_takes_its_prompts_along(chat: httpx.Client) -> None:
    """Most of them are never read to the end, and others are answered."""
    finished, dropped = "vllm:request_success_total{", "quaver_decider_jobs_dropped_total"
    before = metric(chat, finished), metric(chat, dropped)
    content = text(MANY)
    head = f"POST /v1/systemone HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\ncontent-length: {len(content)}\r\n\r\n"
    with socket.create_connection((chat.base_url.host, chat.base_url.port)) as connection:
        connection.sendall(head.encode() + content)
        assert eventually(lambda: metric(chat, "vllm:num_requests_running{") > 0)
    assert eventually(lambda: metric(chat, dropped) == before[1] + 1)
    assert eventually(lambda: metric(chat, "vllm:num_requests_running{") == 0)
    assert metric(chat, finished) - before[0] < len(MANY["questions"]) / 2
    assert chat.post("/v1/systemone", json=BODY).status_code == 200


def test_a_request_that_fails_leaves_the_others_alone(chat: httpx.Client) -> None:
    alone = chat.post("/v1/systemone", json=BODY).json()
    with ThreadPoolExecutor(9) as clients:
        late = clients.submit(chat.post, "/v1/systemone", json={**MANY, "cache_salt": "late", "x_timeout_ms": 300})
        others = [clients.submit(chat.post, "/v1/systemone", json=BODY) for _ in range(8)]
    assert late.result().status_code == 504
    assert [differences(other.result().json(), alone, 1e-4) for other in others] == [[]] * 8
