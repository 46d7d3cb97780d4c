"""clef-omni in a real ``vllm serve``: the reference's answers for text, images, sound and films, whatever its company.

The server computes in float32, where the reference's numbers can be met; its steps are so small that long prompts
are read in parts. In bfloat16 rounding moves the answers of the tiny release by more than any fault would, so there
its weights are made smooth and answers are our engine's; ``test_hybrid`` does the same with clef-flash.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import transformers
from packaging.version import Version
from vectors import OMNI, cases

import quaver
from quaver.decider import Decider
from quaver.models.omni_processor import HEARS_FILMS
from tests.vllm.answers import body, expected, probabilities
from tests.vllm.releases import smooth_omni

#: Those with the model's own limit; arrays of samples do not travel.
CASES = {
    case["id"]: case
    for case in cases("clef-omni-tiny/cases")
    if "max_length" not in case and case["id"] != "audio-array"
}
HEARD = {case for case in CASES if case.endswith("-sound") or case == "video-sound-odd"}
DEAF = Version(transformers.__version__) < HEARS_FILMS
ANSWERED = [name for name, case in CASES.items() if "error" not in case and not (DEAF and name in HEARD)]
REFUSED = [name for name, case in CASES.items() if "error" in case or (DEAF and name in HEARD)]
TOLERANCE = 1e-4
#: vLLM pads clips shorter than a window of its encoder to the longest clip of the step, whoever sent that one.
PADDED, PADDED_TOLERANCE = "audio-short", 1e-3
#: With smooth weights, the server in bfloat16 from our engine in either precision.
BESIDE_OURS = {"float32": 2e-3, "bfloat16": 2e-3}
#: As the reference reads and words things.
SETTINGS = '{"quaver": {"special_tokens": "reference", "confidence": "max"}}'


@pytest.fixture(scope="module")
def omni(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("golden") / "float32.log"
    options = ["--dtype", "float32", "--max-model-len", "8192", "--max-num-batched-tokens", "2048"]
    with serve(OMNI, log, *options, "--additional-config", SETTINGS) as served:
        yield served.url


def ask(url: str, case: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/systemone", json=body(CASES[case], OMNI), timeout=300)


def at_once(url: str, names: list[str]) -> dict[str, httpx.Response]:
    with ThreadPoolExecutor(12) as clients:
        return dict(zip(names, clients.map(lambda name: ask(url, name), names), strict=True))


def deviation(reply: dict[str, Any], case: dict[str, Any]) -> float:
    return max(abs(mine - theirs) for mine, theirs in zip(probabilities(reply, case), expected(case), strict=True))


def test_all_cases_together_have_the_references_answers(omni: str) -> None:
    """Text, images, clips, films, 64 questions and 255 options, twelve at a time, refusals among them."""
    replies = at_once(omni, [*ANSWERED, *REFUSED])
    assert {name: reply.status_code for name, reply in replies.items() if name in ANSWERED} == dict.fromkeys(
        ANSWERED, 200
    )
    codes = {name: replies[name].status_code for name in REFUSED}
    assert {name: code for name, code in codes.items() if not 400 <= code < 500} == {}
    answers = {name: replies[name].json() for name in ANSWERED}
    tokens = {name: answer["usage"]["input_tokens"] for name, answer in answers.items()}
    assert tokens == {name: len(CASES[name]["input_ids"]) for name in ANSWERED}
    far = {name: deviation(answer, CASES[name]) for name, answer in answers.items()}
    assert far.pop(PADDED) < PADDED_TOLERANCE
    assert {name: by for name, by in far.items() if by > TOLERANCE} == {}


def test_what_has_no_record_is_empty_and_its_neighbours_are_answered(omni: str) -> None:
    """vLLM's own pooling route knows nothing of records."""
    prompts = [CASES["text-plain"]["input_ids"], [1, 2, 3], [7]]
    model = httpx.get(f"{omni}/v1/models").json()["data"][0]["id"]
    with ThreadPoolExecutor() as clients:
        pooled = clients.submit(
            httpx.post,
            f"{omni}/pooling",
            json={"model": model, "input": prompts, "task": "token_classify"},
            timeout=300,
        )
        reply = ask(omni, "text-mixed").json()
    assert [row["data"] for row in pooled.result().json()["data"]] == [[], [], []]
    assert deviation(reply, CASES["text-mixed"]) < TOLERANCE


def test_with_smooth_weights_all_cases_have_our_engines_answers_in_bfloat16(
    serve: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    smooth = smooth_omni(tmp_path_factory.mktemp("golden") / "clef-omni-smooth")
    log = tmp_path_factory.mktemp("golden") / "bfloat16.log"
    options = ["--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-batched-tokens", "2048"]
    with serve(smooth, log, *options, "--additional-config", SETTINGS) as served:
        replies = at_once(served.url, ANSWERED)
    assert {name: reply.status_code for name, reply in replies.items()} == dict.fromkeys(ANSWERED, 200)
    for dtype, tolerance in BESIDE_OURS.items():
        with quaver.load(str(smooth), dtype=dtype, special_tokens="reference", confidence="max") as decider:
            far = {name: apart(reply.json(), decider, name) for name, reply in replies.items()}
        print(f"{dtype}: at most {max(far.values()):.2e} in {len(far)} cases")  # pytest -rP shows it
        assert {name: by for name, by in far.items() if by > tolerance} == {}, dtype


def apart(reply: dict[str, Any], decider: Decider[Any], name: str) -> float:
    ours = decider.systemone(body(CASES[name], OMNI))
    pairs = zip(*(probabilities(answer, CASES[name]) for answer in (reply, ours)), strict=True)
    return max(abs(one - other) for one, other in pairs)


def leave(url: str, case: str) -> None:
    """Asks and is gone before the answer."""
    address = httpx.URL(url)
    request = httpx.Request("POST", f"{url}/v1/systemone", json=body(CASES[case], OMNI))
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(f"POST /v1/systemone HTTP/1.1\r\n{head}\r\n".encode() + request.content)


def under_way(url: str) -> float:
    """Requests that vLLM's engine has, running or waiting."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


def eventually(holds: Callable[[], bool], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.2)
    return held


def test_clients_who_leave_free_their_places(omni: str) -> None:
    """Three times as many as fit into a batch, each with a prompt that takes several steps."""
    for _ in range(48):
        leave(omni, "choice-255")
    assert deviation(ask(omni, "text-mixed").json(), CASES["text-mixed"]) < TOLERANCE
    assert eventually(lambda: under_way(omni) == 0)
