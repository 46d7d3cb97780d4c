"""One model on two ranks of a real ``vllm serve``: the answers of one process, by gloo, known states included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from vectors import FLASH, OMNI, cases

import quaver
from tests.vllm.answers import body, probabilities
from tests.vllm.releases import even_omni, smooth_flash

#: Read from the prefix cache where it is known; blocks are of 128 tokens.
SETTINGS = '{"quaver": {"special_tokens": "reference", "confidence": "max", "state_reuse": true}}'


@dataclass(frozen=True, slots=True)
class Split:
    """A release, how it is shared out, and how near its answers are to those of our own engine, which is one
    process."""

    make: Callable[[Path], Path]
    golden: Path
    names: tuple[str, ...]
    options: tuple[str, ...]
    dtype: str
    tolerance: float


#: vLLM 0.32 makes what a stage hands to the next in a run that it leaves out on CPUs unless a model is compiled, so
#: one is, by nobody (TORCHDYNAMO_DISABLE).
COMPILED = ("--no-enforce-eager", "--compilation-config", '{"mode": 1, "backend": "eager"}')
STAGES = ("--pipeline-parallel-size", "2", *COMPILED)
HEARD_AND_SEEN = ("text-mixed", "state-nested", "choice-255", "image-2", "audio-2-lengths", "video-odd")
SEEN = ("text-plain", "state-nested", "choice-100", "image-2", "video-8", "video-image")
SPLITS = {
    "omni, tensors": Split(even_omni, OMNI, HEARD_AND_SEEN, ("--tensor-parallel-size", "2"), "float32", 2e-5),
    "omni, layers": Split(even_omni, OMNI, HEARD_AND_SEEN, STAGES, "float32", 2e-5),
    "flash, tensors": Split(smooth_flash, FLASH, SEEN, ("--tensor-parallel-size", "2"), "bfloat16", 2e-3),
}


@pytest.fixture(scope="module", params=SPLITS)
def split(request: pytest.FixtureRequest) -> Split:
    return SPLITS[request.param]


@pytest.fixture(scope="module")
def folder(split: Split, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return split.make(tmp_path_factory.mktemp("split") / split.golden.name)


@pytest.fixture(scope="module")
def url(serve: Any, split: Split, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("split") / "server.log"
    options = ["--dtype", split.dtype, "--max-model-len", "8192", "--enable-prefix-caching", *split.options]
    with serve(folder, log, *options, "--additional-config", SETTINGS, TORCHDYNAMO_DISABLE="1") as served:
        yield served.url


def test_two_ranks_answer_as_one(split: Split, folder: Path, url: str) -> None:
    release = {case["id"]: case for case in cases(f"{split.golden.name}/cases")}
    bodies = {name: body(release[name], split.golden) for name in split.names}
    with quaver.load(str(folder), dtype=split.dtype, special_tokens="reference", confidence="max") as decider:
        alone = {name: decider.systemone(asked) for name, asked in bodies.items()}

    def ask(name: str) -> dict[str, Any]:
        reply = httpx.post(f"{url}/v1/systemone", json=bodies[name], timeout=300)
        assert reply.status_code == 200, reply.text
        answered: dict[str, Any] = reply.json()
        return answered

    cached = {}
    for _ in range(2):
        with ThreadPoolExecutor(len(bodies)) as clients:
            replies = dict(zip(bodies, clients.map(ask, bodies), strict=True))
        far = {}
        for name, reply in replies.items():
            pairs = zip(*(probabilities(one, release[name]) for one in (reply, alone[name])), strict=True)
            far[name] = max(abs(theirs - ours) for theirs, ours in pairs)
        assert {name: by for name, by in far.items() if by > split.tolerance} == {}
        cached = {name: reply["usage"]["input_tokens_details"]["cached_tokens"] for name, reply in replies.items()}
    assert max(cached.values()) > 0, "the second time the states are known"
