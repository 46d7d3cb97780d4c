"""The gate against servers that lie: every lie is caught, and an honest server passes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quaver.errors import BadRequest
from quaver.evaluate.compare import Arm, Case, HttpServer, Plan, Result, judge, run
from quaver.evaluate.compare.plan import TWIN, Check
from quaver.evaluate.compare.probe import mask_probe

Serve = Callable[..., tuple[Any, str]]
NEW = {"model": "reader@560", "fingerprint": "560|sha256:def", "prompt_tokens": 569, "image_tokens": 534}
BASE = {"model": "reader@base", "fingerprint": "base|sha256:abc", "prompt_tokens": 1129, "/version/version": "0.33.0"}


def make_plan(base_url: str, arm: Arm, cases: int = 4, seeds: tuple[int, ...] = (1, 2), **fields: Any) -> Plan:
    base = Arm("stock", "vllm", base_url, {"model": "reader@base"}, BASE)
    twin = Arm("stock" + TWIN, "vllm", base_url, base.request, BASE, twin=True)
    checks = (Check("is", 532, "/seen"),)
    asked = tuple(Case(f"c{i}", {"messages": [{"role": "user", "content": f"{i}"}]}, checks) for i in range(cases))
    return Plan("budget", "chat", (base, arm, twin), asked, seeds, "stock", "passed", parse="json", **fields)


def compare(plan: Plan, folder: Path) -> Result:
    servers = {
        arm.name: HttpServer(arm.server, arm.url, plan.endpoint, model=str(arm.request.get("model", "")), pause=0)
        for arm in plan.arms
    }
    return judge(plan, run(plan, servers, folder / "records.jsonl"))


def state(result: Result, arm: str) -> tuple[str, str]:
    standing = next(m.standing for m in result.measured if m.arm == arm)
    return standing.state, standing.why


def new_arm(url: str, proof: dict[str, Any] = NEW, **request: Any) -> Arm:
    body = {"model": "reader@560", "mm_processor_kwargs": {"max_soft_tokens": 560}}
    return Arm("560", "vllm", url, body | request, proof)


def test_honest_servers_pass_and_the_difference_is_shown(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def")
    result = compare(make_plan(base, new_arm(url), cases=8), tmp_path)
    assert result.proven and not result.worse
    assert state(result, "560") == ("proven", "")
    assert result.band == 0
    assert [f.verdict for f in result.findings if f.metric == "passed"] == ["shown, also for new cases"]
    assert "560 has more replies that pass: 16/16 against 0/16 of stock" in result.carried[0]


def test_stale_revision_under_its_old_name(serve: Serve, tmp_path: Path) -> None:
    """The deployment failed and the old revision keeps serving."""
    _, base = serve()
    engine, url = serve()
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560")[0] == "refused" and "404" in state(result, "560")[1]
    assert engine.calls == 1
    assert not result.findings and any("560: refused" in words for words in result.not_carried)


def test_stale_revision_that_takes_any_name(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(strict_name=False)
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560") == ("refused", "model of case c0 is 'reader@base' and should be 'reader@560'")


def test_stale_image_behind_the_right_name(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:old")
    result = compare(make_plan(base, new_arm(url, {"model": "reader@560", "image_digest": "sha256:def"})), tmp_path)
    assert "image_digest of case c0 is 'sha256:old'" in state(result, "560")[1]


def forget_budget(_body: dict[str, Any], reply: dict[str, Any], _: int) -> dict[str, Any]:
    """The reply that the server gives without the knob."""
    reply["usage"]["prompt_tokens"] = 1129
    reply["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"] = 1094
    reply["choices"][0]["message"]["content"] = json.dumps({"seen": 1092})
    return reply


def test_dropped_knob_shows_in_the_token_count(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def", lie=forget_budget)
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560") == ("refused", "prompt_tokens of case c0 is 1129 and should be 569")


def test_dropped_knob_without_a_count_is_a_no_op(serve: Serve, tmp_path: Path) -> None:
    """One server for both arms and nothing in the proof to tell them apart: only the bytes can."""
    _, url = serve(answer=lambda _body: "the same")
    knob = Arm("mask", "vllm", url, {"model": "reader@base", "mask": "full"}, {"model": "reader@base"})
    result = compare(make_plan(url, knob), tmp_path)
    assert state(result, "mask")[0] == "no-op" and "byte for byte" in state(result, "mask")[1]
    assert not any(f.arm == "mask" for f in result.findings)
    assert "no effect" not in " ".join(result.not_carried)


def test_a_knob_that_changes_nothing_in_the_run_is_a_no_op_too(serve: Serve, tmp_path: Path) -> None:
    """The names differ, so the gate lets it in; then every answer is the base's."""
    _, base = serve(answer=lambda _body: "the same")
    _, url = serve(model="reader@b", answer=lambda _body: "the same")
    other = Arm("b", "vllm", url, {"model": "reader@b"}, {"model": "reader@b", "prompt_tokens": 1129})
    result = compare(make_plan(base, other), tmp_path)
    assert state(result, "b")[0] == "no-op" and "all 8 answers" in state(result, "b")[1]


def test_an_answer_that_does_not_repeat_proves_nothing(serve: Serve, tmp_path: Path) -> None:
    counter = iter(range(10_000))
    _, url = serve(answer=lambda _body: f"{next(counter)}")
    knob = Arm("mask", "vllm", url, {"model": "reader@base"}, {"model": "reader@base"})
    result = compare(make_plan(url, knob), tmp_path)
    assert state(result, "mask")[0] == "refused" and "does not repeat" in state(result, "mask")[1]


def test_moved_canary(serve: Serve, tmp_path: Path) -> None:
    """Names and counts stay, the answers change half way: a silent restart with another configuration."""

    def lie(_body: dict[str, Any], reply: dict[str, Any], call: int) -> dict[str, Any]:
        if call > 12:
            reply["choices"][0]["message"]["content"] = json.dumps({"seen": 531})
        return reply

    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def", lie=lie)
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560") == (
        "quarantined",
        "after the run, the canary moved: the answer to case c0 is another one",
    )
    assert not result.findings and result.carried == ()


def test_a_revision_that_changes_during_the_run_stops_the_arm(serve: Serve, tmp_path: Path) -> None:
    def lie(_body: dict[str, Any], reply: dict[str, Any], call: int) -> dict[str, Any]:
        return reply | {"system_fingerprint": "base|sha256:abc"} if call > 10 else reply

    _, base = serve()
    engine, url = serve(model="reader@560", fingerprint="560|sha256:def", lie=lie)
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560")[0] == "quarantined" and "during the run" in state(result, "560")[1]
    assert engine.calls == 11


def test_rounded_token_count(serve: Serve, tmp_path: Path) -> None:
    def lie(_body: dict[str, Any], reply: dict[str, Any], _call: int) -> dict[str, Any]:
        reply["usage"]["prompt_tokens"] = round(reply["usage"]["prompt_tokens"], -1)
        return reply

    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def", lie=lie)
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560") == ("refused", "prompt_tokens of case c0 is 570 and should be 569")


def test_a_count_that_is_right_for_one_case_only(serve: Serve, tmp_path: Path) -> None:
    """Counts are declared by case; a server that always says the same number is caught by the second case."""
    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def")
    counts = {"c0": 569, "c1": 571, "c2": 569, "c3": 569}
    result = compare(make_plan(base, new_arm(url, {"model": "reader@560", "prompt_tokens": counts})), tmp_path)
    assert state(result, "560") == ("refused", "prompt_tokens of case c1 is 569 and should be 571")


@pytest.mark.parametrize("what", ["system_fingerprint", "usage"])
def test_what_the_server_does_not_say_is_not_proven(serve: Serve, tmp_path: Path, what: str) -> None:
    _, base = serve()
    _, url = serve(
        model="reader@560",
        fingerprint="560|sha256:def",
        lie=lambda _body, reply, _call: {key: value for key, value in reply.items() if key != what},
    )
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "560")[0] == "refused" and "is None and should be" in state(result, "560")[1]


def test_a_read_back_that_changes_during_the_run(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    engine, url = serve(model="reader@560", fingerprint="560|sha256:def")
    engine.told["/server_info"] = {"vllm_config": {"dtype": "bfloat16"}}

    def finish(_body: dict[str, Any]) -> str:
        if engine.calls > 9:
            engine.told["/server_info"] = {"vllm_config": {"dtype": "float16"}}
        return "stop"

    engine.finish = finish
    proof = NEW | {"/server_info/vllm_config/dtype": "bfloat16"}
    result = compare(make_plan(base, new_arm(url, proof)), tmp_path)
    assert state(result, "560")[0] == "quarantined"
    assert "/server_info/vllm_config/dtype is 'float16' and should be 'bfloat16'" in state(result, "560")[1]


def test_a_read_back_that_is_switched_off(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(model="reader@560", fingerprint="560|sha256:def")
    result = compare(make_plan(base, new_arm(url, NEW | {"/server_info/vllm_config/dtype": "bfloat16"})), tmp_path)
    assert state(result, "560")[0] == "refused"


def test_what_no_live_answer_must_carry_is_no_witness(serve: Serve, tmp_path: Path) -> None:
    """A name that the server repeats whatever it serves; no proof at all; only what it says of itself."""
    _, base = serve()
    _, url = serve(strict_name=False, lie=lambda body, reply, _call: reply | {"model": body["model"]})
    echo = Arm("echo", "sglang", url, {"model": "other"}, {"model": "other"})
    nothing = Arm("nothing", "vllm", url, {"model": "reader@base"}, {})
    itself = Arm("itself", "vllm", url, {"model": "reader@base"}, {"/version/version": "0.33.0"})
    for arm in (echo, nothing, itself):
        standing, why = state(compare(make_plan(base, arm), tmp_path / arm.name), arm.name)
        assert standing == "refused" and "every live answer" in why


def test_nothing_runs_without_a_proven_base(serve: Serve, tmp_path: Path) -> None:
    _, base = serve(fingerprint="older|sha256:abc")
    engine, url = serve(model="reader@560", fingerprint="560|sha256:def")
    result = compare(make_plan(base, new_arm(url)), tmp_path)
    assert state(result, "stock")[0] == state(result, "560")[0] == "refused"
    assert engine.calls == 0


def test_a_server_that_is_gone_or_talks_nonsense(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()
    _, url = serve(model="reader@560", lie=lambda _body, _reply, _call: {"choices": "none", "usage": 3})
    for name, address in (("nonsense", url), ("gone", "http://127.0.0.1:9")):
        assert state(compare(make_plan(base, new_arm(address)), tmp_path / name), "560")[0] == "refused"


def logprobs(bidirectional: bool) -> Callable[[dict[str, Any], dict[str, Any], int], dict[str, Any]]:
    """Prompt log-probabilities of 16 image tokens; under a bidirectional mask all of them know the whole image."""

    def lie(body: dict[str, Any], reply: dict[str, Any], call: int) -> dict[str, Any]:
        image = body["messages"][0]["content"][0]["image_url"]["url"]
        shift = 0.5 if image == "data:changed" and bidirectional else 0.0
        noise = 1e-5 * (call % 3)
        block = [{"258880": {"logprob": -2.0 - 0.1 * i + shift + noise}} for i in range(16)]
        return reply | {"prompt_logprobs": [None, {"5": {"logprob": -1.0}}, *block]}

    return lie


@pytest.mark.parametrize("bidirectional", [True, False])
def test_mask_probe(serve: Serve, bidirectional: bool) -> None:
    _, url = serve(lie=logprobs(bidirectional))
    settings = {"top": "data:top", "changed": "data:changed", "image_token": 258880}
    server = HttpServer("vllm", url, "chat", pause=0)
    seen = mask_probe(server, {"model": "reader@base"}, settings)
    assert seen == ("bidirectional" if bidirectional else "causal")
    with pytest.raises(BadRequest, match="is that the image token"):
        mask_probe(server, {"model": "reader@base"}, settings | {"image_token": 7})
    _, plain = serve()
    with pytest.raises(BadRequest, match="needs prompt_logprobs"):
        mask_probe(HttpServer("vllm", plain, "chat"), {"model": "reader@base"}, settings)


def test_the_mask_is_a_proof_like_any_other(serve: Serve, tmp_path: Path) -> None:
    _, base = serve()

    def lie(body: dict[str, Any], reply: dict[str, Any], call: int) -> dict[str, Any]:
        return logprobs(False)(body, reply, call) if "prompt_logprobs" in body else reply

    _, url = serve(model="reader@560", fingerprint="560|sha256:def", lie=lie)
    probe = {"top": "data:top", "changed": "data:changed", "image_token": 258880}
    arm = Arm("560", "vllm", url, new_arm(url).request, NEW | {"mask": "bidirectional"}, probe)
    assert state(compare(make_plan(base, arm), tmp_path), "560") == (
        "refused",
        "mask is 'causal' and should be 'bidirectional'",
    )
