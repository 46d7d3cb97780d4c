"""A known state is not read again, and the answers stay: the reference's, with hits, evictions and preemptions.

The server has room for eight blocks of 128 tokens and reads 64 tokens of a prompt at a time, so prompts that meet
push each other out of the KV cache half read.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from vectors import OMNI, cases

CASES = {case["id"]: case for case in cases("clef-omni-tiny/cases") if "max_length" not in case}
#: Each at least one block long and at most seven.
NAMES = ["text-plain", "text-mixed", "special-in-state", "state-nested", "image-square_256", "image-odd_37x91"]
SETTINGS = '{"quaver": {"state_reuse": true, "special_tokens": "reference", "confidence": "max"}}'
SMALL = ["--num-gpu-blocks-override", "9", "--max-num-batched-tokens", "256", "--long-prefill-token-threshold", "64"]
#: float32, as in the laws of our own engine.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def url(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("reuse") / "server.log"
    options = ["--dtype", "float32", "--max-model-len", "1024", "--enable-prefix-caching", *SMALL]
    with serve(OMNI, log, *options, "--additional-config", SETTINGS) as served:
        yield served.url


def ask(url: str, name: str, **more: Any) -> dict[str, Any]:
    asked = {key: value for key, value in CASES[name]["request"].items() if key != "model"} | more
    if "images" in asked:
        files = [(OMNI / image).read_bytes() for image in asked["images"]]
        asked["images"] = [f"data:;base64,{base64.b64encode(file).decode()}" for file in files]
    reply = httpx.post(f"{url}/v1/systemone", json=asked, timeout=300)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["input_tokens_details"]["cached_tokens"])


def numbers(answer: dict[str, Any]) -> list[float]:
    return [answer["noul"]] if answer["type"] == "noul" else list(answer["probabilities"].values())


def deviation(reply: dict[str, Any], name: str) -> float:
    """From the reference's probabilities."""
    far = []
    for question, expected in zip(CASES[name]["questions"], CASES[name]["probabilities_fp32"], strict=True):
        answer = reply["answers"][question["id"]]
        if answer["type"] == "noul":
            far.append(abs(answer["noul"] - expected[0]))
            continue
        # The reference has them in the order of the prompt.
        ours = [answer["probabilities"][option] for option in question["option_ids"]]
        far += [abs(one - other) for one, other in zip(ours, expected, strict=True)]
    return max(far)


@pytest.mark.parametrize("name", NAMES)
def test_the_second_answer_is_the_first_and_the_references(url: str, name: str) -> None:
    first, again = (ask(url, name, cache_salt="quiet") for _ in range(2))
    assert cached(first) == 0 and cached(again) >= 128
    assert deviation(first, name) <= TOLERANCE and deviation(again, name) <= TOLERANCE


@pytest.mark.parametrize("salt", ["one", "two"])
def test_prompts_that_push_each_other_out_have_the_references_answers(url: str, salt: str) -> None:
    asked = NAMES * 4
    random.Random(salt).shuffle(asked)
    with ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(lambda name: ask(url, name, cache_salt=salt), asked))
    far = [
        (name, cached(reply)) for name, reply in zip(asked, replies, strict=True) if deviation(reply, name) > TOLERANCE
    ]
    assert far == []
    assert any(cached(reply) for reply in replies)


def questions(name: str, kept: Sequence[str]) -> dict[str, Any]:
    asked: dict[str, Any] = CASES[name]["request"]["questions"]
    return {question: asked[question] for question in kept}


def test_other_questions_about_a_known_state(url: str) -> None:
    """A hit ends anywhere: at the state's end, or within a question that was asked before."""
    name = "state-nested"
    names = list(CASES[name]["request"]["questions"])
    wordings = [names[:1], names, names[::-1], names[1:]]
    known = [ask(url, name, questions=questions(name, kept), cache_salt="known") for kept in wordings]
    fresh = [ask(url, name, questions=questions(name, kept), cache_salt=f"new {i}") for i, kept in enumerate(wordings)]
    assert [cached(reply) > 0 for reply in known] == [False, True, True, True]
    assert not any(map(cached, fresh))
    for ours, theirs in zip(known, fresh, strict=True):
        for question, answer in ours["answers"].items():
            assert numbers(answer) == pytest.approx(numbers(theirs["answers"][question]), abs=TOLERANCE)
