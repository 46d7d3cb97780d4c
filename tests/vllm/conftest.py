"""Servers that run vLLM with the plugin. Without vLLM (the environment of ``scripts/test``) this folder is skipped;
``scripts/test-vllm`` has it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

#: What serves, up to the model: vLLM's own command, and ours that becomes it.
VLLM = ("vllm.entrypoints.cli.main", "serve")
QUAVER = ("quaver", "serve", "--engine", "vllm")
#: The key of the chat model's server.
KEY = "a-key-for-tests"
#: Tokens of a prompt there.
LENGTH = 8000
#: A start takes a minute on two cores, and many beside other work.
START = 1200


def pytest_configure() -> None:
    """A run that ``timeout`` ends takes its servers along."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@dataclass(frozen=True, slots=True)
class Served:
    """A server under way; ``log`` is what it has written."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def serving(
    model: Path, log: Path, *options: str, command: Sequence[str] = VLLM, **environment: str
) -> Iterator[Served]:
    """``vllm serve`` of ``model`` with the plugin, or another ``command`` that ends in it, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", *command, str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--enforce-eager", "--max-num-seqs", "16", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "VLLM_PLUGINS": "quaver", **environment},
            start_new_session=True,
        )
    served = Served(f"http://127.0.0.1:{port}", log, process)
    try:
        _wait(served)
        yield served
    finally:
        # Its engine and workers are of the same group.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(served: Served) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if served.process.poll() is not None:
            break
        try:
            if httpx.get(f"{served.url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    pytest.fail(f"the server did not start:\n{served.log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="session")
def serve() -> Callable[..., object]:
    """``serving``, for tests that need a server of their own; every start costs a minute."""
    return serving


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen3 with random weights, of a shape that vLLM reads on a CPU."""
    from chat_release import chat_release

    folder = tmp_path_factory.mktemp("releases") / "tiny-qwen3"
    shape = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    chat_release(folder, "qwen3", "qwen3", **shape)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8192}))
    return folder


@pytest.fixture(scope="session")
def chat(chat_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The chat model behind ``quaver serve --engine vllm`` with a key; one server for all tests of the session."""
    log = tmp_path_factory.mktemp("chat") / "server.log"
    options = ["--dtype", "float32", "--max-model-len", "8192", "--max-length", str(LENGTH), "--api-key", KEY]
    key = {"authorization": f"Bearer {KEY}"}
    # vLLM would compile the rank of a token at the first request, which takes longer than all tests.
    with (
        serving(chat_folder, log, *options, command=QUAVER, TORCHDYNAMO_DISABLE="1") as served,
        httpx.Client(base_url=served.url, headers=key, timeout=300) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def ours(chat_folder: Path) -> Iterator[Any]:
    """The same model in our own engine."""
    import quaver

    with quaver.load(str(chat_folder), dtype="float32", max_length=LENGTH) as decider:
        yield decider
