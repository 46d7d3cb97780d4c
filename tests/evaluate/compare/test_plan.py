"""Plan files: what they may say, and what is refused with its place."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from quaver.errors import BadRequest
from quaver.evaluate.compare import Case, Plan, read_plan
from quaver.evaluate.compare.plan import TWIN, Check
from quaver.evaluate.compare.reply import facts, grade

PLAN: dict[str, Any] = {
    "name": "budget",
    "endpoint": "chat",
    "base": "stock",
    "seeds": [1, 2],
    "parse": "json",
    "cases": "cases.jsonl",
    "arms": {
        "stock": {"server": "vllm", "url": "http://a", "request": {"model": "m@a"}, "proof": {"model": "m@a"}},
        "560": {
            "server": "vllm",
            "url": "http://b",
            "proof": {"prompt_tokens": {"frame": 569}, "/version/version": "0.33.0"},
        },
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": "frame.png"}}
CASE = {
    "id": "frame",
    "body": {"messages": [{"role": "user", "content": [IMAGE]}], "max_tokens": 4096},
    "checks": [{"at": "/title", "is": "Ledger"}, {"has": "Ledger"}, {"at": "/rows", "matches": "^\\[1"}],
}


def write(folder: Path, plan: dict[str, Any] = PLAN, case: dict[str, Any] = CASE) -> Path:
    (folder / "frame.png").write_bytes(b"png bytes")
    (folder / "cases.jsonl").write_text(json.dumps(case) + "\n")
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    return folder / "plan.yaml"


def test_a_plan_is_read_with_its_images_and_a_twin(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path))
    assert [arm.name for arm in plan.arms] == ["stock", "560", "stock" + TWIN]
    assert plan.arms[2].twin and plan.arms[2].proof == plan.arms[0].proof
    assert [arm.name for arm in plan.rivals] == ["560"] and plan.primary == "passed"
    url = plan.cases[0].body["messages"][0]["content"][0]["image_url"]["url"]
    assert url == "data:image/png;base64," + base64.b64encode(b"png bytes").decode()
    before = plan.cases[0].digest
    (tmp_path / "frame.png").write_bytes(b"other bytes")
    assert read_plan(tmp_path / "plan.yaml").cases[0].digest != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arm": {}}, "'arm' is not known"),
        ({"base": "560x"}, "base '560x' is none of the arms"),
        ({"endpoint": "completions"}, "endpoint must be one of chat"),
        ({"seeds": 3}, "seeds must be of type list"),
        ({"margin": True}, "margin must be of type float"),
        ({"stop": {"first": 0.5, "second": 0.5}, "primary": "loop"}, "two different rates"),
        ({"stop": {"first": 0.5, "second": 0.6}, "primary": "checks"}, "stop tests a rate"),
        ({"cases": []}, "there must be cases"),
        ({"cases": 5}, "cases must be a list"),
        ({"arms": {}}, "base 'stock' is none of the arms"),
        ({"seeds": []}, "seeds must be whole numbers, each once"),
        ({"seeds": [1, 1]}, "seeds must be whole numbers, each once"),
        ({"seeds": [1, "a"]}, "seeds must be whole numbers, each once"),
        ({"stop": {"first": 0.5, "second": 0.6, "alpha": 0}, "primary": "loop"}, "alpha and beta must lie"),
        ({"cases": [{"id": "x", "body": {}, "checks": [{"matches": "("}]}]}, "is not a regular expression"),
        ({"cases": "none.jsonl"}, "none.jsonl cannot be read"),
        ({"arms": {"stock": {"server": "tgi", "url": ""}}}, "server must be one of"),
        ({"arms": {"stock": {"server": "vllm", "url": "", "proof": {"modle": 1}}}}, "proof 'modle' is neither"),
        ({"arms": {"stock": {"server": "vllm", "url": "", "proof": {"prompt_tokens": {"x": 1}}}}}, "for case 'frame'"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_plan(write(tmp_path, PLAN | change))


def test_images_behind_addresses_are_refused(tmp_path: Path) -> None:
    case = CASE | {"body": {"images": ["https://example.org/a.png"]}}
    with pytest.raises(BadRequest, match="images are sent by content"):
        read_plan(write(tmp_path, case=case))


@pytest.mark.parametrize(
    ("text", "parsed", "passed"),
    [
        ('{"title": "Ledger", "rows": [1, 2]}', True, 3),
        ('{"title": "ledger", "rows": [2]}', True, 0),
        ('{"title": "Ledger", "rows": [1,', False, 0),
        ("", False, 0),
    ],
)
def test_grades(tmp_path: Path, text: str, parsed: bool, passed: int) -> None:
    plan = read_plan(write(tmp_path))
    reply = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    graded = grade(plan, plan.cases[0], reply)
    assert (graded.parsed, graded.passed, graded.checks) == (parsed, passed, 3)


def test_a_cap_is_no_loop_and_what_the_gold_repeats_is_none(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path))
    rows = '{"rows": "' + "0,0,0\\n" * 60
    reply = {"choices": [{"message": {"content": rows}, "finish_reason": "length"}]}
    assert grade(plan, Case("c", {}), reply).loop is not None
    assert grade(plan, Case("c", {}, gold=rows), reply).loop is None
    honest = {
        "choices": [{"message": {"content": '{"rows": "' + str(list(range(0, 9000, 7)))}, "finish_reason": "length"}]
    }
    assert grade(plan, Case("c", {}), honest).loop is None


def test_facts_of_both_dialects() -> None:
    chat = {
        "model": "m",
        "system_fingerprint": "armK|sha256:ab|0.33.0",
        "usage": {
            "prompt_tokens": 1129,
            "prompt_tokens_details": {"cached_tokens": 0, "multimodal_tokens": {"image": 1094}},
        },
        "choices": [{"finish_reason": "length"}],
    }
    assert facts(chat) == {
        "model": "m",
        "fingerprint": "armK|sha256:ab|0.33.0",
        "image_digest": "sha256:ab",
        "prompt_tokens": 1129,
        "image_tokens": 1094,
        "cached_tokens": 0,
        "finish_reason": "length",
    }
    decision = {
        "model": "m",
        "x_reading": "joint",
        "x_timing": {"read": 1},
        "usage": {"input_tokens": 7},
        "answers": {},
    }
    assert facts(decision) == {"model": "m", "x_reading": "joint", "prompt_tokens": 7}


def test_labels_become_checks(tmp_path: Path) -> None:
    case = {"id": "frame", "body": {"state": ""}, "labels": {"urgent": True, "level": 2}}
    plan: Plan = read_plan(write(tmp_path, PLAN | {"endpoint": "systemone"}, case))
    assert plan.cases[0].checks == (Check("is", "true", "/urgent/label"), Check("is", "2", "/level/label"))
