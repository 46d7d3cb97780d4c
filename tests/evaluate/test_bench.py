"""Load: what is sent is what was asked for, every answer counts once, and the search finds where a server gives up."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome

from quaver.evaluate.bench.load import Block, Closed, Load, Open, Sample, Server, drive
from quaver.evaluate.bench.page import page, words
from quaver.evaluate.bench.plan import BISECTIONS, Level, Plan, Search, bench
from quaver.evaluate.bench.summary import summarise
from quaver.evaluate.bench.workload import Workload
from quaver.protocol import parse

USAGE = {"usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}}}
A = Server("a", "http://a/v1/systemone", {"authorization": "Bearer k"})
B = Server("b", "http://b/v1/decisions", {})

Handler = Callable[[httpx.Request], Any]


def run(handler: Handler, server: Server, load: Load, bodies: list[dict[str, Any]]) -> Block:
    async def go() -> Block:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            return await drive(client, server, load, bodies)

    return asyncio.run(go())


def test_a_workload_has_the_shares_asked_for() -> None:
    workload = Workload(new_states=0.3, shared_schemas=0.8, words=20, pool=5)
    bodies = [workload.body(i) for i in range(2000)]
    assert bodies[7] == workload.body(7)
    states = Counter(body["state"] for body in bodies)
    assert sum(count == 1 for count in states.values()) == pytest.approx(600, abs=60)
    assert sum(count > 1 for count in states.values()) == 5
    schemas = Counter(json.dumps(body["questions"]) for body in bodies)
    assert schemas.most_common(1)[0][1] == pytest.approx(1600, abs=60)
    assert len(bodies[0]["state"].split()) == 20
    assert parse(bodies[0]).request.questions.keys() == {"q0", "q1", "q2", "q3"}
    assert Workload(seed=1).body(0) != Workload(seed=2).body(0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_at_their_ends(share: float) -> None:
    workload = Workload(new_states=share, shared_schemas=1 - share, words=5, pool=3)
    bodies = [workload.body(i) for i in range(50)]
    assert len({body["state"] for body in bodies}) == (50 if share else 3)
    assert len({json.dumps(body["questions"]) for body in bodies}) == (50 if share else 1)


def test_arrivals() -> None:
    assert list(Open(4.0, "constant").due(5, 0)) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])
    due = list(Open(50.0).due(5000, 0))
    gaps = [b - a for a, b in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 50, rel=0.05) and spread == pytest.approx(mean, rel=0.05)


def test_a_closed_loop_never_has_more_under_way_than_asked() -> None:
    under_way, most = 0, 0

    async def handler(_: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return httpx.Response(200, json=USAGE)

    block = run(handler, A, Closed(3), [{"n": i} for i in range(20)])
    assert most == 3 and len(block.samples) == 20


def test_an_open_loop_does_not_wait_for_answers() -> None:
    """The server answers nobody before all have asked: a closed loop would never end."""
    waiting = 0
    everyone = asyncio.Event()

    async def handler(_: httpx.Request) -> httpx.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 8:
            everyone.set()
        await everyone.wait()
        return httpx.Response(200, json=USAGE)

    block = run(handler, A, Open(1000.0, "constant"), [{}] * 8)
    assert [sample.error for sample in block.samples] == [None] * 8
    assert all(sample.seconds >= sample.lag for sample in block.samples)


def test_errors_by_kind_and_the_dialect_by_address() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        match len(seen):
            case 1:
                raise httpx.ReadTimeout("late", request=request)
            case 2:
                raise httpx.ConnectError("gone", request=request)
            case 3:
                return httpx.Response(429)
            case 4:
                return httpx.Response(200, text="hello")
        return httpx.Response(200, json=USAGE)

    body = Workload(words=3, questions=1).body(0)
    block = run(handler, A, Closed(1), [body] * 6)
    found = summarise(Closed(1), [block])
    assert found["errors"] == {"timeout": 1, "ConnectError": 1, "HTTP 429": 1, "not a reply": 1}
    assert (found["requests"], found["ok"], found["cached_share"]) == (6, 2, 0.4)
    assert seen[0].headers["authorization"] == "Bearer k"
    assert json.loads(seen[-1].content) == body
    run(handler, B, Closed(1), [body])
    assert json.loads(seen[-1].content)["input"] == body["state"]


def test_the_numbers_of_a_block() -> None:
    samples = tuple(Sample(i / 100, 0.0, None, 50, 10) for i in range(1, 101))
    found = summarise(Open(10.0), [Block(samples, 5.0), Block(samples[:50], 5.0)])
    assert found["seconds"]["max"] == 1.0 and found["seconds"]["p50"] == pytest.approx(0.385, abs=0.01)
    assert (found["per_second"], found["per_second_blocks"]) == (15.0, [20.0, 10.0])
    assert (found["tokens_per_second"], found["cached_share"]) == (750.0, 0.2)
    assert found["load"] == {"mode": "open", "rate": 10.0, "arrivals": "poisson"}
    nothing = summarise(Closed(1), [Block((Sample(1.0, 0.0, "timeout"),), 1.0)])
    assert nothing["seconds"]["p95"] is None and nothing["ok"] == 0
    json.dumps([found, nothing], allow_nan=False)


@pytest.mark.parametrize("limit", [3.0, 37.0, 500.0])
def test_the_search_comes_close_to_the_limit(limit: float) -> None:
    search = Search(rate=1.0)
    while not search.done:
        search.learn(Level(Open(search.rate), ()), search.rate <= limit)
    assert search.kept <= limit < search.kept * (1 + 2 / 2**BISECTIONS) + 1e-9
    assert max(level.load.rate for level in search.levels) <= 2 * limit  # type: ignore[union-attr]


def test_a_server_that_answers_nothing_sustains_nothing() -> None:
    search = Search(rate=1.0)
    while not search.done:
        search.learn(Level(Open(search.rate), ()), False)
    assert search.kept == 0 and len(search.levels) == BISECTIONS + 1


def plan_over(handler: Handler, plan: Plan, servers: tuple[Server, ...] = (A, B)) -> Any:
    return asyncio.run(bench(servers, Workload(words=3), plan, transport=httpx.MockTransport(handler)))


def test_servers_are_interleaved_and_get_the_same_requests() -> None:
    hosts: list[str] = []
    states: dict[str, list[str]] = {"a": [], "b": []}

    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        hosts.append(request.url.host)
        states[request.url.host].append(body.get("state") or body["input"])
        return httpx.Response(200, json=USAGE)

    result = plan_over(handler, Plan((Closed(1), Closed(2)), requests=20, rounds=4, warmup=3))
    assert states["a"] == states["b"] and len(states["a"]) == 3 + 2 * 20
    assert {name: [len(level.blocks) for level in levels] for name, levels in result.levels.items()} == {
        "a": [4, 4], "b": [4, 4],
    }  # fmt: skip
    blocks = [hosts[6 + i * 5] for i in range(16)]
    assert all(sorted(blocks[i : i + 2]) == ["a", "b"] for i in range(0, 16, 2))
    assert len({tuple(blocks[i : i + 2]) for i in range(0, 16, 2)}) == 2  # the order is drawn anew
    assert all(level["requests"] == 20 for level in result.to_json()["a"]["levels"])


@pytest.mark.parametrize(("requests", "rounds", "parts"), [(10, 4, [3, 3, 2, 2]), (2, 4, [1, 1]), (8, 2, [4, 4])])
def test_as_many_requests_are_sent_as_are_asked_for(requests: int, rounds: int, parts: list[int]) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=USAGE))
    plan = Plan((Closed(1),), requests=requests, rounds=rounds, warmup=0)
    result = asyncio.run(bench([A], Workload(), plan, transport=transport))
    assert [len(block.samples) for block in result.levels[A.name][0].blocks] == parts


def test_saturation_of_two_servers() -> None:
    """One server refuses all, the other what comes after its first 60 requests."""
    count = Counter[str]()

    def handler(request: httpx.Request) -> httpx.Response:
        count[request.url.host] += 1
        refused = request.url.host == "b" or count["a"] > 60
        return httpx.Response(503) if refused else httpx.Response(200, json=USAGE)

    result = plan_over(handler, Plan((), requests=20, warmup=0, rate=2000.0, slowest=60.0, step=0.0))
    assert result.sustained == {"a": 8000.0, "b": 0.0}
    assert result.to_json()["b"]["sustained_per_second"] == 0.0


def test_the_pages_in_a_browser(tmp_path: Path, browser: Chrome) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=USAGE) if request.url.host == "a" else httpx.Response(503, text="<b>full</b>")

    for levels, plots in (((Closed(2),), 1), ((Closed(1), Closed(2), Closed(4)), 3)):
        result = plan_over(handler, Plan(levels, requests=20, rounds=2, warmup=0))
        (tmp_path / "load.html").write_text(page(result, {"requests": 20}))
        browser.set_window_size(600, 900)
        browser.get(f"file://{tmp_path / 'load.html'}")
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.execute_script("return document.querySelectorAll('figure svg').length") == plots
        text = browser.find_element("tag name", "body").text
        assert "20 HTTP 503" in text and "2 at once" in text and "{" not in text.partition("What was asked")[0]
        assert browser.get_log("browser") == []
    assert words(Open(2.5, "constant")) == "2.5/s, constant"
