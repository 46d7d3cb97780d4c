"""Clef-flash in a real ``vllm serve``: recurrent and attention layers, text, images and videos, as our engine answers.

vLLM's kernel of the gated delta rule for CPUs takes heads of 64 and more, in bfloat16 only, so a release with such
heads is made from the tiny one.
"""

from __future__ import annotations

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

NAMES = ("text-plain", "text-indic-thai-viet", "state-nested", "choice-100", "questions-10", "prefix-a", "prefix-b")
SEEN = ("image-scene_640x480", "image-2", "video-8", "video-odd", "video-image")
CASES = {case["id"]: case for case in cases("clef-flash-tiny/cases") if case["id"] in NAMES + SEEN}
TOLERANCE = 2e-3
SETTINGS = '{"quaver": {"special_tokens": "reference"}}'


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smooth_flash(tmp_path_factory.mktemp("hybrid") / "clef-flash-wide")


@pytest.fixture(scope="module")
def url(serve: Any, wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("hybrid") / "server.log"
    options = ["--dtype", "bfloat16", "--max-model-len", "8192", "--additional-config", SETTINGS]
    with serve(wide, log, *options) as served:
        yield served.url


def test_answers_are_near_our_engines(url: str, wide: Path) -> None:
    bodies = {name: body(case, FLASH) for name, case in CASES.items()}

    def ask(name: str) -> httpx.Response:
        return httpx.post(f"{url}/v1/systemone", json=bodies[name], timeout=300)

    with ThreadPoolExecutor(6) as clients:
        replies = list(clients.map(ask, bodies))
    assert [reply.status_code for reply in replies] == [200] * len(bodies)
    answered = dict(zip(bodies, (reply.json() for reply in replies), strict=True))
    with quaver.load(str(wide), dtype="float32", special_tokens="reference") as decider:
        ours = {name: decider.systemone(asked) for name, asked in bodies.items()}
    far = {}
    for name, case in CASES.items():
        assert answered[name]["usage"]["input_tokens"] == ours[name]["usage"]["input_tokens"] == len(case["input_ids"])
        pairs = zip(probabilities(answered[name], case), probabilities(ours[name], case), strict=True)
        far[name] = max(abs(theirs - mine) for theirs, mine in pairs)
    assert {name: by for name, by in far.items() if by > TOLERANCE} == {}
