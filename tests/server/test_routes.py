"""Paths, dialects, models, ids, metrics: what a well-behaved caller sees."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_metrics

import quaver
from quaver.server import ServerConfig
from quaver.server.metrics import STATS
from quaver.server.routes import OTHER_PATHS
from quaver.testing import FakeDecider
from tests.server.conftest import DECISIONS, SYSTEMONE, Http, Running

PATHS = ("/v1/systemone", "/v1/decisions", *OTHER_PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_takes_both_dialects(http: Http, path: str) -> None:
    assert set(http.ask(SYSTEMONE, path).json()["answers"]) == {"q"}
    assert [answer["type"] for answer in http.ask(DECISIONS, path).json()["answers"]] == ["predicate"]


@pytest.mark.parametrize("prefix", ["/client/v4/accounts/me/ai/run", "/accounts/me/ai/run"])
def test_cloudflare_envelope(http: Http, prefix: str) -> None:
    good = http.ask(SYSTEMONE, f"{prefix}/@cf/jev-latest").json()
    assert (good["success"], good["errors"], good["messages"]) == (True, [], [])
    assert set(good["result"]["answers"]) == {"q"}
    bad = http.ask(SYSTEMONE, f"{prefix}/@cf/cloudflare/other")
    assert bad.status_code == 400
    assert bad.json()["result"] is None
    assert "cloudflare/other" in bad.json()["errors"][0]["message"]


def test_a_missing_key_is_told_in_the_envelope_too() -> None:
    http = Http(FakeDecider(), ServerConfig(api_keys=("k",)))
    refused = http.ask(SYSTEMONE, "/accounts/me/ai/run/@cf/jev-latest")
    assert (refused.status_code, refused.json()["success"], refused.json()["result"]) == (403, False, None)
    assert "an API key is required" in refused.json()["errors"][0]["message"]


def test_the_reply_names_the_real_model(http: Http) -> None:
    for name in ("jev-latest", "fake-1", None):
        assert http.ask({**SYSTEMONE, "model": name}).json()["model"] == "fake-1"


def test_unknown_model_by_dialect(http: Http) -> None:
    one = http.ask({**SYSTEMONE, "model": "jev-0"})
    assert (one.status_code, one.json()["detail"]["error_type"]) == (400, "api_usage_error")
    two = http.ask({**DECISIONS, "model": "gpt-0"})
    assert (two.status_code, two.json()["error"]["code"], two.json()["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    assert "Known models: fake-1, jev-latest" in one.text and "fake-1" in two.text


def test_a_broken_rule_by_dialect(http: Http) -> None:
    one = http.ask({**SYSTEMONE, "questions": {"q": {"type": "choice", "criteria": {}}}}, "/v1/decisions")
    assert one.status_code == 422
    assert one.json()["detail"][0]["loc"] == ["body", "questions", "q", "criteria"]
    assert 'question "q"' in one.json()["error"]["message"]
    two = http.ask({**DECISIONS, "questions": [{"type": "predicate"}]}, "/v1/systemone")
    assert two.status_code == 400
    assert two.json()["error"]["param"] == "questions.0.instructions"
    assert "detail" not in two.json()


@pytest.mark.parametrize(("path", "status"), [("/v1/systemone", 422), ("/v1/decisions", 400)])
def test_an_unreadable_body_is_answered_as_the_path_suggests(http: Http, path: str, status: int) -> None:
    assert http("POST", path, content=b"{").status_code == status
    assert http("POST", path, content=b"[1]").status_code == status


def test_models(http: Http) -> None:
    listed = http("GET", "/v1/models").json()
    assert [model["name"] for model in listed["models"]] == [model["id"] for model in listed["data"]]


def test_health_and_readiness(http: Http) -> None:
    assert http("GET", "/healthz").json() == http("GET", "/health").json() == {"ok": True}
    assert http("GET", "/readyz").status_code == 200
    http.decider.close()
    assert http("GET", "/healthz").status_code == 200
    stopped = http("GET", "/readyz")
    assert (stopped.status_code, stopped.headers["retry-after"]) == (503, "1")


def test_request_ids(http: Http) -> None:
    made = http.ask()
    assert re.fullmatch(r"req_[0-9a-f]{32}", made.headers["x-request-id"])
    assert made.headers["x-typesafe-request-id"] == made.headers["x-request-id"]
    for name in ("x-request-id", "x-typesafe-request-id"):
        echoed = http("GET", "/nowhere", headers={name: "mine-1"})
        assert (echoed.status_code, echoed.headers["x-request-id"]) == (404, "mine-1")
    assert http.ask(headers={"x-request-id": "a b\tc"}).headers["x-request-id"].startswith("req_")


def test_wrong_path_and_method_have_error_bodies(http: Http) -> None:
    assert http("GET", "/nowhere").json()["error"]["message"] == "Not Found"
    wrong = http("GET", "/v1/systemone")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["detail"]["message"] == "Method Not Allowed"


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/health", "/readyz", "/metrics"])
def test_head_is_get_without_a_body(running: Callable[..., Running], path: str) -> None:
    # Of RFC 9110, section 9.3.2. Through a socket, because the body is the server's to leave out.
    server = running(FakeDecider())
    head, get = (httpx.request(method, f"{server.url}{path}") for method in ("HEAD", "GET"))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


def test_a_cut_state_is_said_in_the_reply_the_header_and_a_counter() -> None:
    http = Http(FakeDecider(truncated_tokens=7))
    reply = http.ask()
    assert reply.json()["x_truncated"] == {"state_tokens": 7}
    assert reply.headers["x-quaver-truncated"] == "7"
    assert "quaver_truncated_requests_total 1.0" in http("GET", "/metrics").text


def test_nothing_is_said_about_a_state_that_was_read_whole(http: Http) -> None:
    reply = http.ask()
    assert "x_truncated" not in reply.json() and "x-quaver-truncated" not in reply.headers


def test_metrics(http: Http) -> None:
    http.ask()
    http.ask({}, "/v1/decisions")
    http.ask(DECISIONS)
    text = http("GET", "/metrics").text
    assert 'quaver_requests_total{dialect="systemone",status="200"} 1.0' in text
    assert 'quaver_requests_total{dialect="decisions",status="400"} 1.0' in text
    assert 'quaver_request_seconds_count{dialect="decisions"} 2.0' in text
    assert "quaver_input_tokens_total 26.0" in text
    assert "quaver_cached_tokens_total 0.0" in text
    assert "quaver_requests_in_flight 0.0" in text
    assert 'quaver_phase_seconds_count{phase="prefill"} 2.0' in text


def test_the_decider_s_numbers_have_types_and_the_names_that_routers_know() -> None:
    decider = FakeDecider()
    kept = {"jobs_waiting": 3, "jobs_running": 2, "state_cache_bytes": 25, "state_cache_budget": 100, "steps": 7}
    decider.stats = lambda: kept  # type: ignore[method-assign]
    families = {family.name: family for family in parse_metrics(Http(decider)("GET", "/metrics").text)}
    types = {name.removeprefix("quaver_decider_"): family.type for name, family in families.items()}
    assert {name: types[name] for name in kept} == {**dict.fromkeys(kept, "gauge"), "steps": "counter"}
    values = {sample.name: sample.value for family in families.values() for sample in family.samples}
    assert values["quaver_decider_steps_total"] == 7
    assert values["vllm:num_requests_waiting"] == 3
    assert values["vllm:num_requests_running"] == 2
    assert values["vllm:kv_cache_usage_perc"] == 0.25


def test_every_number_of_a_real_decider_is_explained() -> None:
    with quaver.load() as decider:
        assert set(decider.stats()) <= set(STATS)


def test_openapi_names_every_documented_route(http: Http) -> None:
    document = http("GET", "/openapi.json").json()
    decided = {"/v1/systemone", "/v1/systemone/batch", "/v1/decisions"}
    assert set(document["paths"]) == {*decided, "/v1/models", "/healthz", "/readyz", "/metrics"}
    bodies = document["paths"]["/v1/systemone"]["post"]["requestBody"]["content"]
    assert set(bodies) == {"application/json", "multipart/form-data"}
    refs = set(re.findall(r"#/components/schemas/(\w+)", http("GET", "/openapi.json").text))
    assert refs <= set(document["components"]["schemas"])


def test_two_apps_in_one_process_count_apart() -> None:
    one, two = Http(FakeDecider()), Http(FakeDecider())
    one.ask()
    assert 'status="200"} 1.0' in one("GET", "/metrics").text
    assert 'status="200"} 1.0' not in two("GET", "/metrics").text
