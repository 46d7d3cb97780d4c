"""The order of asking, the record file, and what the judge makes of it."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from quaver.errors import BadRequest, ServerError
from quaver.evaluate.compare import Arm, Case, LocalServer, Plan, Result, judge, run
from quaver.evaluate.compare.parity import Parity
from quaver.evaluate.compare.plan import TWIN, Check
from quaver.evaluate.compare.power import Sprt
from quaver.evaluate.compare.run import RecordFile

LOOP = '{"text": "' + "over and over, " * 60


class Scripted:
    """A server in this process that answers each call from (body, number of the call)."""

    def __init__(self, name: str, answer: Callable[[dict[str, Any]], str], broken_after: int = 10**9) -> None:
        self.name, self.answer, self.left, self.calls = name, answer, broken_after, 0

    def read_back(self) -> dict[str, Any]:
        return {}

    def ask(self, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        self.calls += 1
        if self.calls > self.left:
            raise ServerError("503: busy", 503)
        text = self.answer(body)
        reason = "length" if text.startswith(LOOP[:20]) else "stop"
        choice = {"message": {"content": text[: body.get("max_tokens", 10**6)]}, "finish_reason": reason}
        return {"model": self.name, "choices": [choice], "usage": {"prompt_tokens": 9}}, 1


def loops(rate: float, salt: str) -> Callable[[dict[str, Any]], str]:
    """Loops at ``rate``, settled by case and seed, so that a repeated call repeats."""

    def answer(body: dict[str, Any]) -> str:
        rng = random.Random(f"{salt} {body['case']} {body['seed']}")
        return LOOP if rng.random() < rate else json.dumps({"text": f"fine {rng.random()} {salt}"})

    return answer


def plan_of(*names: str, cases: int = 8, seeds: int = 3, **fields: Any) -> Plan:
    arms = [Arm(name, "vllm", "", {}, {"model": name}) for name in names]
    arms.append(replace(arms[0], name=names[0] + TWIN, twin=True))
    asked = tuple(
        Case(f"c{i}", {"case": i, "max_tokens": 5000}, (Check("has", "fine", "/text"),)) for i in range(cases)
    )
    return Plan("p", "chat", tuple(arms), asked, tuple(range(seeds)), names[0], "loop", parse="json", **fields)


def compare(plan: Plan, servers: dict[str, Any], path: Path, **options: Any) -> Result:
    return judge(plan, run(plan, servers, path / "r.jsonl", **options))


def test_base_and_control_open_and_close_and_the_rest_is_interleaved() -> None:
    plan = plan_of("stock", "text only", "a", "b", control="text only")
    order = plan.schedule()
    assert sorted(order) == sorted((a.name, c.id, s) for a in plan.arms for c in plan.cases for s in plan.seeds)
    frame = {"stock", "text only"}
    assert {arm for arm, _, _ in order[:16]} == {arm for arm, _, _ in order[-16:]} == frame
    middle = [arm for arm, _, _ in order[16:-16]]
    assert set(middle) == {"stock", "text only", "a", "b", "stock" + TWIN}
    changes = sum(x != y for x, y in pairwise(middle))
    assert changes > len(middle) / 2
    assert order == plan.schedule() != replace(plan, order_seed=1).schedule()
    one_seed = replace(plan, seeds=(1,)).schedule()
    assert {one_seed[0][0], one_seed[-1][0]} <= frame


def test_loops_are_counted_and_the_difference_is_judged(tmp_path: Path) -> None:
    servers = {
        name: Scripted(name, loops(rate, name)) for name, rate in (("stock", 0.8), ("good", 0.05), ("idle", 0.8))
    }
    result = compare(plan_of("stock", "good", "idle"), servers, tmp_path)
    verdicts = {f.arm: f.verdict for f in result.findings if f.metric == "loop"}
    assert verdicts["good"].startswith("shown")
    assert verdicts["idle"] == "not shown"
    assert "good has fewer loops" in result.carried[0]
    assert any("idle changes the share of loops, or that it does not" in words for words in result.not_carried)
    assert not result.worse
    rates = {m.arm: {r.metric: r for r in m.rates} for m in result.measured}
    assert rates["stock"]["loop"].successes == rates["stock" + TWIN]["loop"].successes
    assert rates["good"]["passed"].runs == 24
    swapped = replace(plan_of("good", "stock"), name="swapped")
    assert compare(swapped, servers, tmp_path / "swapped").worse


def test_few_cases_carry_no_claim_about_new_ones(tmp_path: Path) -> None:
    servers = {name: Scripted(name, loops(rate, name)) for name, rate in (("stock", 0.95), ("good", 0.0))}
    result = compare(plan_of("stock", "good", cases=5), servers, tmp_path)
    assert [f.verdict for f in result.findings if f.metric == "loop"] == ["shown on these cases"]
    assert "with 5 cases no p below 0.0625 exists" in " ".join(result.not_carried)
    assert "with 5 cases no two-sided p below 0.0625 exists for new cases" in result.warnings


def test_no_effect_is_only_said_within_the_margin(tmp_path: Path) -> None:
    servers = {name: Scripted(name, loops(0.0, name)) for name in ("stock", "same")}
    result = compare(plan_of("stock", "same", cases=20), servers, tmp_path)
    assert [f.verdict for f in result.findings if f.metric == "loop"] == ["no change within the margin"]


def test_a_difference_within_the_noise_band_is_none(tmp_path: Path) -> None:
    """The base drifts: its twin, asked in the middle, differs from it as much as the arm does."""
    plan = plan_of("stock", "arm", cases=6, seeds=6)
    shifting = Scripted("stock", lambda body: loops(0.0 if body["seed"] in (0, 5) else 1.0, "s")(body))
    servers = {"stock": shifting, "arm": Scripted("arm", loops(1.0, "a"))}
    book = run(plan, servers, tmp_path / "r.jsonl")
    for key, record in book.records.items():
        if key[0] == "stock" + TWIN:
            record["loop"] = {"kind": "period", "start": 0, "period": 1, "suspect": False}
    result = judge(plan, book)
    assert result.band == pytest.approx(1 / 3)
    assert [f.verdict for f in result.findings if f.metric == "loop"] == ["within the noise band"]
    assert not result.carried


def test_a_run_is_resumed_where_it_stopped(tmp_path: Path) -> None:
    plan = plan_of("stock", "good")
    path = tmp_path / "r.jsonl"
    whole = {name: Scripted(name, loops(0.5, name)) for name in ("stock", "good")}
    reference = run(plan, whole, tmp_path / "whole.jsonl")
    half = {name: Scripted(name, loops(0.5, name), broken_after=60) for name in ("stock", "good")}
    half["good"].left = 30
    broken = run(plan, half, path)
    failed = {key for key, record in broken.records.items() if "error" in record}
    assert failed and len(failed) < len(broken.records)
    assert {standing.state for standing in broken.last.values()} == {"refused"}
    assert "was not answered" in judge(plan, broken).not_carried[0]

    path.write_bytes(path.read_bytes()[:-7])  # cut short, as by a crash
    again = {name: Scripted(name, loops(0.5, name)) for name in ("stock", "good")}
    resumed = run(plan, again, path)
    assert judge(plan, resumed).proven
    assert {k: r["text"] for k, r in resumed.records.items()} == {k: r["text"] for k, r in reference.records.items()}
    canaries = 3 * 2 * 2 * len(plan.cases)
    assert sum(server.calls for server in again.values()) == canaries + len(failed)


def test_a_server_that_changed_between_two_sessions(tmp_path: Path) -> None:
    plan = plan_of("stock", "good", cases=2)
    servers = {name: Scripted(name, loops(0.5, name)) for name in ("stock", "good")}
    run(plan, servers, tmp_path / "r.jsonl")
    servers["good"] = Scripted("good", loops(0.5, "another configuration"))
    result = compare(plan, servers, tmp_path)
    good = next(m.standing for m in result.measured if m.arm == "good")
    assert good.state == "quarantined" and "since the run was begun, the canary moved" in good.why
    assert compare(plan, {**servers, "good": Scripted("good", loops(0.5, "good"))}, tmp_path).proven is False


def test_a_record_file_belongs_to_one_plan(tmp_path: Path) -> None:
    plan = plan_of("stock", "good", cases=2)
    servers = {name: Scripted(name, loops(0.5, name)) for name in ("stock", "good")}
    run(plan, servers, tmp_path / "r.jsonl")
    first = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])
    assert first["asked"]["cases"] == {case.id: case.digest for case in plan.cases} and "power" in first["noted"]
    changed = replace(plan.cases[0], body={"case": 0, "max_tokens": 4999})
    for other in (
        replace(plan, seeds=(5,)),
        replace(plan, cases=(changed, *plan.cases[1:])),
        replace(plan, margin=0.3),
    ):
        with pytest.raises(BadRequest, match="another plan"):
            run(other, servers, tmp_path / "r.jsonl")
    (tmp_path / "x.jsonl").write_text("nothing\n")
    with pytest.raises(BadRequest, match="not a record file"):
        RecordFile.read(tmp_path / "x.jsonl")


def test_failed_calls_count_as_wrong_and_many_of_them_void_the_arm(tmp_path: Path) -> None:
    def sometimes(body: dict[str, Any]) -> str:
        if body["max_tokens"] > 1000 and body["case"] == 3:
            raise ServerError("500: out of memory", 500)
        return loops(0.0, "good")(body)

    servers = {"stock": Scripted("stock", loops(0.0, "stock")), "good": Scripted("good", sometimes)}
    result = compare(plan_of("stock", "good"), servers, tmp_path)
    good = next(m for m in result.measured if m.arm == "good")
    passed = next(rate for rate in good.rates if rate.metric == "passed")
    assert (good.failures, passed.successes, passed.runs) == (3, 21, 24)
    assert not result.findings and "3 of 24 calls failed" in result.not_carried[0]


def test_a_sequential_test_stops_an_arm(tmp_path: Path) -> None:
    plan = plan_of("stock", "good", cases=20, stop=Sprt(0.8, 0.2))
    servers = {name: Scripted(name, loops(rate, name)) for name, rate in (("stock", 0.8), ("good", 0.05))}
    result = compare(plan, servers, tmp_path)
    runs = {m.arm: m.runs for m in result.measured}
    assert runs["stock"] == 60 and runs["good"] < 15
    assert [f.verdict for f in result.findings if f.metric == "loop"] == ["screened"]
    assert "Confirm with fresh seeds" in result.not_carried[0]


def test_concurrent_calls_fill_the_same_file(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    plan = plan_of("stock", "good", cases=4)
    servers = {name: Scripted(name, loops(0.5, name)) for name in ("stock", "good")}
    book = run(plan, servers, tmp_path / "r.jsonl", concurrency=5, on_progress=lambda *at: seen.append(at))
    assert len(book.records) == 36 and seen[-1] == (36, 36)
    assert sorted(r["order"] for r in book.records.values()) == list(range(36))


class Decider:
    """Two decisions by the length of the state, in both dialects."""

    def __init__(self, name: str, shift: float) -> None:
        self.name, self.shift = name, shift

    def systemone(self, body: dict[str, Any]) -> dict[str, Any]:
        p = min(1.0, 0.1 * len(body["state"]) + self.shift)
        options = {"x": p, "y": 1 - p}
        answers = {
            "long": {"type": "noul", "noul": p},
            "which": {"type": "choice", "choice": max(options, key=options.__getitem__), "probabilities": options},
            "level": {"type": "score", "score": 1 - p, "probabilities": {"0": p, "1": 1 - p}},
        }
        return {
            "model": self.name,
            "x_reading": "joint",
            "answers": answers,
            "usage": {"input_tokens": len(body["state"])},
        }

    def decisions(self, body: dict[str, Any]) -> dict[str, Any]:
        answers = [
            {"type": "predicate", "name": "long", "probability": 0.9},
            {"type": "choice", "name": "which", "choice": "x", "probabilities": [{"value": "x", "probability": 0.9}]},
            {
                "type": "score",
                "name": "level",
                "score": 0.1,
                "probabilities": [{"value": 0, "label": "low", "probability": 0.9}],
            },
        ]
        return {"model": self.name, "answers": answers[: len(body)], "usage": {"input_tokens": 3}}


@pytest.mark.parametrize("endpoint", ["systemone", "decisions"])
def test_decisions_in_this_process(tmp_path: Path, endpoint: Any) -> None:
    labels = {"long": "true", "which": "x", "level": "0"}
    checks = tuple(Check("is", label, f"/{name}/label") for name, label in labels.items())
    proof = {"model": "old-1", "/models/models/0/name": "old-1"}
    old = Arm("old", "local", "old", {}, proof | {"x_reading": "joint"} if endpoint == "systemone" else proof)
    new = Arm("new", "local", "new", {}, {"/models/models/new-1/name": "new-1", "model": "new-1"})
    twin = replace(old, name="old" + TWIN, twin=True)
    cases = tuple(Case(f"c{i}", {"state": "#" * 4, "input": "", "questions": {}}, checks) for i in range(6))
    plan = Plan("d", endpoint, (old, new, twin), cases, (1,), "old", "passed")
    servers = {name: LocalServer(Decider(f"{name}-1", shift), endpoint) for name, shift in (("old", 0.0), ("new", 0.5))}
    result = compare(plan, servers, tmp_path)
    states = {m.arm: m.standing.state for m in result.measured}
    if endpoint == "decisions":
        assert states["new"] == "no-op"  # both answer the same bytes
        return
    assert set(states.values()) == {"proven"}
    parity = {m.arm: m.parity for m in result.measured}
    assert parity["old" + TWIN] == Parity(18, 18, 0.0)
    assert parity["new"] == Parity(0, 18, pytest.approx(0.5))
    finding = next(f for f in result.findings if f.metric == "passed")
    assert finding.table == (6, 6, 0, 6) and finding.p_mcnemar == pytest.approx(2 / 2**6)
    assert finding.verdict == "shown, also for new cases"
