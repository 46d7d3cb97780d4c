"""The mask probe against a server that computes real log-probabilities, under both rules of its mask."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from gemma4_tiny import BOI, EOI, IMAGE, tiny_gemma4
from PIL import Image
from transformers import Gemma4UnifiedImageProcessor
from typer.testing import CliRunner

from quaver.cli.main import app
from quaver.errors import BadRequest
from quaver.evaluate.mask import MaskReading, probe_mask, probe_pictures


class Reader:
    """A tiny Gemma 4 of transformers that sees without an encoder, asked as vLLM is asked."""

    def __init__(self) -> None:
        self.model = tiny_gemma4("12B")
        self.processor = Gemma4UnifiedImageProcessor(patch_size=4, pooling_kernel_size=2, max_soft_tokens=70)
        self.two_ways = True
        self.noise = 0.0
        self.asked: list[dict[str, Any]] = []

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        picture = body["messages"][0]["content"][0]["image_url"]["url"].partition(",")[2]
        pixels = np.array(Image.open(BytesIO(base64.b64decode(picture))))
        budget = body.get("mm_processor_kwargs", {}).get("max_soft_tokens", 70)
        image = self.processor([torch.from_numpy(pixels).movedim(-1, 0)], max_soft_tokens=budget, return_tensors="pt")
        count = int(image.pop("num_soft_tokens_per_image")[0])
        ids = torch.tensor([[1, 2, 3, BOI, *[IMAGE] * count, EOI, 7, 8, 9, 7, 8, 9]])
        kinds = (ids == IMAGE).long() * self.two_ways
        with torch.inference_mode():
            logits = self.model(input_ids=ids, mm_token_type_ids=kinds, **image).logits[0]
        logprobs = logits.float().log_softmax(-1)
        logprobs += self.noise * torch.randn(logprobs.shape)
        entries: list[dict[str, Any] | None] = [None]
        for token, row in zip(ids[0, 1:].tolist(), logprobs, strict=False):
            likeliest = row.topk(body["prompt_logprobs"]).indices.tolist()
            entries.append({str(t): {"logprob": float(row[t])} for t in [token, *likeliest]})
        return {"model": "tiny", "prompt_logprobs": entries, "choices": [{"message": {"content": "x"}}]}


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader()


@pytest.fixture
def url(reader: Reader) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"object": "list", "data": [{"id": "tiny"}]})

        def do_POST(self) -> None:
            self._reply(reader.answer(json.loads(self.rfile.read(int(self.headers["content-length"])))))

        def _reply(self, value: dict[str, Any]) -> None:
            text = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    reader.two_ways, reader.noise = True, 0.0


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["probe", "mask", *arguments])


@pytest.mark.parametrize("two_ways", [True, False])
def test_a_server_is_read_from_outside(reader: Reader, url: str, two_ways: bool) -> None:
    reader.two_ways = two_ways
    done = command("--url", url, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["verdict"] == ("bidirectional" if two_ways else "causal")
    assert (said["change"] > 1e-2) == two_ways
    # The picture is square, and 70 tokens at most are 8 x 8 of them, of which a quarter lies above.
    assert (said["tokens"], said["compared"], said["noise"], said["model"]) == (64, 16, 0.0, "tiny")
    assert reader.asked[-1]["model"] == "tiny"


def test_the_image_budget_is_asked_for(reader: Reader, url: str) -> None:
    done = command("--url", url, "--image-budget", "140", "--json")
    assert json.loads(done.stdout)["tokens"] == 121
    assert reader.asked[-1]["mm_processor_kwargs"] == {"max_soft_tokens": 140}


@pytest.mark.parametrize(("expected", "code"), [("bidirectional", 0), ("causal", 3)])
def test_what_is_expected_decides_the_exit_code(url: str, expected: str, code: int) -> None:
    done = command("--url", url, "--expect", expected)
    assert done.exit_code == code
    assert "bidirectional" in done.stdout and "tokens" in done.stdout


def test_noise_as_large_as_the_change_decides_nothing(reader: Reader, url: str) -> None:
    reader.noise = 1.0
    done = command("--url", url, "--json")
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (3, "undecided")


def test_what_cannot_be_probed(reader: Reader, url: str) -> None:
    assert command("--url", url, "--image-token", "5").exit_code == 1
    assert command("--url", url, "--no-bidirectional").exit_code == 2
    assert command().exit_code == 2
    assert command("--url", url, "--model", "folder").exit_code == 2
    with pytest.raises(BadRequest, match="tokens 5 in the prompt and needs 8"):
        probe_mask(reader.answer, {}, probe_pictures(96, 96), image_token=5)
    with pytest.raises(BadRequest, match="the server gave none"):
        probe_mask(lambda _: {"choices": []}, {}, probe_pictures(96, 96))
    one, _ = probe_pictures(96, 96)
    with pytest.raises(BadRequest, match="take 64 and 6"):
        probe_mask(reader.answer, {}, (one, probe_pictures(96, 200)[0]))


@pytest.mark.parametrize("size", [(96, 96), (101, 77), (1, 2)])
def test_pictures_are_equal_above_and_different_below(size: tuple[int, int]) -> None:
    read: Callable[[str], np.ndarray[Any, Any]] = lambda url: np.array(  # noqa: E731
        Image.open(BytesIO(base64.b64decode(url.partition(",")[2])))
    )
    one, other = map(read, probe_pictures(*size))
    half = size[1] // 2
    assert one.shape == other.shape == (size[1], size[0], 3)
    assert (one[:half] == other[:half]).all() and (one[half:] != other[half:]).all()


@pytest.mark.parametrize(
    ("change", "noise", "verdict"),
    [(0.0, 0.0, "causal"), (0.5, 0.0, "bidirectional"), (0.5, 0.2, "undecided"), (1e-4, 1e-5, "causal")],
)
def test_verdicts(change: float, noise: float, verdict: str) -> None:
    assert MaskReading(64, 16, change, noise).verdict == verdict
