"""Clef-flash in a real ``vllm serve``: recurrent and attention layers, text, images and videos, as our engine answers.

vLLM's kernel of the gated delta rule for CPUs takes heads of 64 and more, in bfloat16 only, so a release with such
heads is made from the tiny one; its weights are smooth, because rounding moves the tiny one's answers by more than
any fault would. The server keeps states that it knows and has room for few of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from vectors import FLASH, cases

import quaver
from tests.vllm.answers import body, probabilities
from tests.vllm.releases import smooth_flash

#: Questions without a name and words are refused here, and so are pads in a text beside images.
REFUSED = ("nan-empty-id", "err-image-pad-in-state")
CASES = {
    case["id"]: case
    for case in cases("clef-flash-tiny/cases")
    if "max_length" not in case and "error" not in case and case["id"] not in REFUSED
}
#: Of two blocks of 256 tokens and a little more.
STATES = ["prefix-a", "prefix-b", "state-nested", "image-scene_640x480"]
#: From our engine in either precision.
TOLERANCES = {"float32": 1e-3, "bfloat16": 2e-3}
#: From the answer of the same server that has read everything, in steps of other shapes.
REUSED = 1e-4
SETTINGS = '{"quaver": {"special_tokens": "reference", "confidence": "max", "state_reuse": true}}'
SMALL = ["--num-gpu-blocks-override", "40", "--max-num-batched-tokens", "512", "--long-prefill-token-threshold", "256"]


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smooth_flash(tmp_path_factory.mktemp("hybrid") / "clef-flash-smooth")


@pytest.fixture(scope="module")
def url(serve: Any, smooth: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("hybrid") / "server.log"
    options = ["--dtype", "bfloat16", "--max-model-len", "8192", "--enable-prefix-caching", *SMALL]
    with serve(smooth, log, *options, "--additional-config", SETTINGS, TORCHDYNAMO_DISABLE="1") as served:
        yield served.url


def ask(url: str, name: str, salt: str) -> dict[str, Any]:
    asked = {**body(CASES[name], FLASH), "cache_salt": salt}
    reply = httpx.post(f"{url}/v1/systemone", json=asked, timeout=300)
    assert reply.status_code == 200, f"{name}: {reply.text}"
    answered: dict[str, Any] = reply.json()
    return answered


def deviation(name: str, one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(*(probabilities(reply, CASES[name]) for reply in (one, other)), strict=True)
    return max(abs(theirs - ours) for theirs, ours in pairs)


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["input_tokens_details"]["cached_tokens"])


def test_every_golden_case_is_answered_as_by_our_engine_in_either_precision(url: str, smooth: Path) -> None:
    with ThreadPoolExecutor(6) as clients:
        replies = dict(zip(CASES, clients.map(lambda name: ask(url, name, "golden"), CASES), strict=True))
    tokens = {name: reply["usage"]["input_tokens"] for name, reply in replies.items()}
    assert tokens == {name: len(case["input_ids"]) for name, case in CASES.items()}
    for dtype, tolerance in TOLERANCES.items():
        with quaver.load(str(smooth), dtype=dtype, special_tokens="reference", confidence="max") as decider:
            far = {
                name: deviation(name, reply, decider.systemone(body(CASES[name], FLASH)))
                for name, reply in replies.items()
            }
        print(f"{dtype}: at most {max(far.values()):.2e} in {len(far)} cases")  # pytest -rP shows it
        assert {name: by for name, by in far.items() if by > tolerance} == {}, dtype


def test_known_states_are_not_read_again_and_their_answers_stay(url: str) -> None:
    first, again = ({name: ask(url, name, f"only {name}") for name in STATES} for _ in range(2))
    assert {name: (cached(first[name]) % 256, cached(again[name])) for name in STATES} == dict.fromkeys(
        STATES, (0, 512)
    )
    assert max(deviation(name, first[name], again[name]) for name in STATES) <= REUSED


@pytest.mark.parametrize("salt", ["one", "two"])
def test_prompts_that_push_each_other_out_have_the_same_answers(url: str, salt: str) -> None:
    quiet = {name: ask(url, name, f"quiet {salt}") for name in STATES}
    asked = [*STATES * 6, "choice-100", "questions-10"]
    random.Random(salt).shuffle(asked)
    with ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(lambda name: ask(url, name, salt), asked))
    pairs = [(name, reply) for name, reply in zip(asked, replies, strict=True) if name in quiet]
    assert max(deviation(name, reply, quiet[name]) for name, reply in pairs) <= REUSED
    assert any(cached(reply) for reply in replies)
