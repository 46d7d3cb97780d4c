"""Real clients of both dialects, each asking a running server every type of question that it knows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import decide
import httpx
import jev_lite
import openai
import pytest
import system_one
import systemone
import systemone_sq
import typesafe_sdk

STATE = {"ticket": "Card was charged two times", "plan": "pro"}
REFUND = "Does the writer ask for money back?"
QUEUE = "Where should it go?"
OPTIONS = {"billing": "payments", "tech": "bugs and outages", "other": "anything else"}
HEAT = "How angry?"
LEVELS = ["calm", "annoyed", "furious"]
NODE = Path(os.environ.get("QUAVER_NODE", Path(__file__).parents[2] / ".cache" / "node"))


def check(noul: float, choice: str, probabilities: dict[str, float], score: float, levels: list[float]) -> None:
    assert 0 <= noul <= 1
    assert list(probabilities) == list(OPTIONS) or set(probabilities) == set(OPTIONS)
    assert choice == max(probabilities, key=probabilities.__getitem__)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-9)
    assert score == pytest.approx(sum(i * p for i, p in enumerate(levels)), abs=1e-9)
    assert sum(levels) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("filler", ["", "word " * 1000], ids=["plain", "zstd"])
def test_typesafe_sdk(locked_server, filler: str) -> None:
    sent: list[httpx.Headers] = []
    questions = {
        "refund": typesafe_sdk.Noul(instructions=REFUND, criteria={"true": "asks to be repaid", "false": None}),
        "queue": typesafe_sdk.Choice(instructions={"ask": QUEUE}, criteria={**OPTIONS, "other": None}),
        "heat": typesafe_sdk.Score(instructions=HEAT, criteria=LEVELS),
    }
    with typesafe_sdk.TypeSafeClient(api_key=locked_server.key, base_url=locked_server.url) as client:
        watch(client, sent)
        reply = client.system_one(state={**STATE, "more": filler}, questions=questions)
        listed = client.models.list()
    assert [headers.get("content-encoding") for headers in sent[:1]] == (["zstd"] if filler else [None])
    queue, heat = reply.choices["queue"], reply.scores["heat"]
    check(reply.nouls["refund"].noul, queue.choice, queue.probabilities, heat.score, list(heat.probabilities.values()))
    assert heat.legend == dict(enumerate(LEVELS))
    assert {"jev-latest", "jev-preview"} <= {model.name for model in listed.models}


def watch(client: typesafe_sdk.TypeSafeClient, sent: list[httpx.Headers]) -> None:
    """Note the headers of every request that ``client`` really sends."""
    http = next(value for value in vars(client).values() if hasattr(value, "event_hooks"))
    http.event_hooks["request"].append(lambda request: sent.append(request.headers))


def test_typesafe_sdk_maps_errors(locked_server) -> None:
    noul = {"q": typesafe_sdk.Noul(instructions="Yes?")}
    stranger = typesafe_sdk.TypeSafeClient(api_key="wrong", base_url=locked_server.url)
    with stranger, pytest.raises(typesafe_sdk.TypeSafeAuthenticationError, match="not valid"):
        stranger.system_one(state="x", questions=noul)
    known = typesafe_sdk.TypeSafeClient(api_key=locked_server.key, base_url=locked_server.url)
    with known, pytest.raises(typesafe_sdk.TypeSafeBadRequestError, match="Unknown model"):
        known.system_one(state="x", questions=noul, model="jev-0")


def test_openai(locked_server) -> None:
    client = openai.OpenAI(api_key=locked_server.key, base_url=f"{locked_server.url}/v1")
    decision = client.decisions.create(
        model="gpt-6-luna",
        input=[{"role": "user", "content": [{"type": "input_text", "text": STATE["ticket"]}]}],
        questions=[
            {"type": "predicate", "name": "refund", "instructions": REFUND},
            {"type": "choice", "instructions": QUEUE, "choices": [{"value": True}, {"value": "true"}]},
            {"type": "score", "name": "heat", "instructions": HEAT, "levels": [{"label": level} for level in LEVELS]},
        ],
    )
    refund, queue, heat = decision.answers
    assert (refund.name, queue.name, heat.name) == ("refund", None, "heat")
    assert 0 <= refund.probability <= 1
    assert [item.value for item in queue.probabilities] == [True, "true"]
    assert queue.choice in (True, "true")
    assert [item.label for item in heat.probabilities] == LEVELS
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0
    assert "gpt-6-luna" in {model.id for model in client.models.list()}


def test_openai_maps_errors(locked_server) -> None:
    client = openai.OpenAI(api_key=locked_server.key, base_url=f"{locked_server.url}/v1", max_retries=0)
    with pytest.raises(openai.BadRequestError) as bad:
        client.decisions.create(
            model="gpt-6-luna",
            input="x",
            questions=[{"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "a"}]}],
        )
    assert bad.value.param == "questions.0.choices.1.value"
    with pytest.raises(openai.NotFoundError, match="Unknown model"):
        client.decisions.create(model="gpt-1", input="x", questions=[{"type": "predicate", "instructions": "?"}])


TENANT = {"cache_salt": "tenant", "x_priority": 5, "x_timeout_ms": 60_000}


def test_the_real_sdks_carry_our_own_fields(locked_server) -> None:
    client = openai.OpenAI(api_key=locked_server.key, base_url=f"{locked_server.url}/v1")
    predicate = {"type": "predicate", "instructions": REFUND}
    with typesafe_sdk.TypeSafeClient(api_key=locked_server.key, base_url=locked_server.url) as other:
        noul = {"refund": typesafe_sdk.Noul(instructions=REFUND)}
        reply = other.system_one(state="a state of a tenant", questions=noul, extra_body=TENANT)

    def again(**extra: object):
        asked = {"input": "a state of a tenant", "questions": [predicate], "extra_body": {**TENANT, **extra}}
        return client.decisions.create(model="gpt-6-luna", **asked)

    assert again().answers[0].probability == reply.nouls["refund"].noul
    assert again().usage.input_tokens_details.cached_tokens == reply.usage.input_tokens
    assert again(cache_salt="stranger").usage.input_tokens_details.cached_tokens < reply.usage.input_tokens


def test_a_time_limit_that_is_over_is_not_tried_again(locked_server) -> None:
    client = openai.OpenAI(api_key=locked_server.key, base_url=f"{locked_server.url}/v1")
    questions = [{"type": "predicate", "instructions": REFUND}]
    with pytest.raises(openai.APIStatusError) as late:
        client.decisions.create(model="gpt-6-luna", input="x", questions=questions, extra_body={"x_timeout_ms": 0.001})
    assert (late.value.status_code, late.value.code) == (504, "expired")
    assert 'status="504"} 1.0' in httpx.get(f"{locked_server.url}/metrics").text


@pytest.mark.parametrize("dialect", ["systemone", "decisions"])
def test_jev_lite(locked_server, dialect: str) -> None:
    if dialect == "systemone":
        client = jev_lite.TypeSafe(api_key=locked_server.key, base_url=locked_server.url)
    else:
        client = jev_lite.OpenAIDecisions(api_key=locked_server.key, base_url=f"{locked_server.url}/v1")
    reply = client.system_one.create(
        state=STATE,
        questions={
            "refund": jev_lite.Noul(instructions=REFUND),
            "queue": jev_lite.Choice(instructions=QUEUE, criteria=OPTIONS),
            "heat": jev_lite.Score(instructions=HEAT, criteria=LEVELS),
        },
    )
    refund, queue, heat = (reply.answers[name] for name in ("refund", "queue", "heat"))
    check(refund.noul, queue.choice, queue.probabilities, heat.score, list(heat.probabilities.values()))


@pytest.mark.parametrize("path", ["/v1/systemone", "/api/alpha/decisions"])
def test_system_one(locked_server, path: str) -> None:
    config = system_one.HTTPConfig(base_url=locked_server.url, path=path, api_key=locked_server.key, model="jev-latest")
    reply = system_one.SystemOne(config).ask(
        STATE,
        {
            "refund": system_one.Noul(instructions=REFUND),
            "queue": system_one.Choice(instructions=QUEUE, criteria=OPTIONS),
            "heat": system_one.Score(instructions=HEAT, criteria=LEVELS),
        },
    )
    refund, queue, heat = (reply.answers[name] for name in ("refund", "queue", "heat"))
    check(refund.noul, queue.choice, queue.probabilities, heat.score, list(heat.probabilities.values()))


def test_systemone_client(locked_server) -> None:
    with systemone.Client(locked_server.url, api_key=locked_server.key) as client:
        reply = client.system_one(
            STATE,
            {
                "refund": systemone.Noul(REFUND, "asks to be repaid"),
                "queue": systemone.Choice(QUEUE, OPTIONS),
                "heat": systemone.Score(HEAT, LEVELS),
            },
        )
        with pytest.raises(systemone.SystemOneError, match="criteria"):
            client.system_one(STATE, {"heat": {"type": "score", "criteria": {"0": "calm"}}})
    queue, heat = reply.choices["queue"], reply.scores["heat"]
    check(reply.nouls["refund"].noul, queue.choice, queue.probabilities, heat.score, list(heat.probabilities.values()))


@pytest.mark.parametrize("backend", ["typesafe", "openrouter", "openai_decisions"])
def test_pydecide(locked_server, backend: str) -> None:
    from decide.backends import load

    base = {"typesafe": "", "openrouter": "/api", "openai_decisions": "/v1"}[backend]
    model = "gpt-6-luna" if backend == "openai_decisions" else "jev-latest"
    asked = load(backend, api_key=locked_server.key, base_url=f"{locked_server.url}{base}", model=model)
    reply = asked.decide(
        decide.Request(
            state=STATE,
            questions={
                "refund": decide.Noul(REFUND, {"true": "asks to be repaid"}),
                "queue": decide.Choice(QUEUE, OPTIONS),
                "heat": decide.Score(HEAT, LEVELS),
            },
        )
    )
    refund, queue, heat = (reply.answers[name] for name in ("refund", "queue", "heat"))
    check(refund.noul, queue.choice, dict(queue.probabilities), heat.score, list(heat.probabilities))


def test_sq_system_one(locked_server) -> None:
    with systemone_sq.Client(provider="custom", base_url=locked_server.url, api_key=locked_server.key) as client:
        reply = client.evaluate(
            STATE,
            {
                "refund": systemone_sq.Noul(REFUND),
                "queue": systemone_sq.Choice(QUEUE, OPTIONS),
                "heat": systemone_sq.Score(HEAT, LEVELS),
            },
        )
    refund, queue, heat = (reply.answers[name] for name in ("refund", "queue", "heat"))
    check(refund.noul, queue.choice, dict(queue.probabilities), heat.score, list(heat.probabilities.values()))


def test_javascript_sdk(open_server) -> None:
    script = Path(__file__).parent / "js" / "ask.cjs"
    done = subprocess.run(["node", script, NODE, open_server.url], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n(scripts/test installs the SDK into {NODE})"
    seen = json.loads(done.stdout)
    answers = seen["response"]["answers"]
    assert 0 <= answers["refund"]["noul"] <= 1
    assert set(answers["queue"]["probabilities"]) == {"billing", "other"}
    assert answers["heat"]["legend"] == dict(zip("012", LEVELS, strict=True))
    assert seen["refusal"]["name"] == "BadRequestError"
    assert "no-such-model" in seen["refusal"]["message"]
    assert "jev-latest" in {model["name"] for model in seen["models"]}
