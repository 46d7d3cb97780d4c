"""Servers that run vLLM with the plugin. Without vLLM (the environment of ``scripts/test``) this folder is skipped;
``scripts/test-vllm`` has it."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

GOLDEN = Path(__file__).parents[1] / "golden"
OMNI = GOLDEN / "clef-omni-tiny"
FLASH = GOLDEN / "clef-flash-tiny"
#: A start takes a minute on two cores, and longer beside other tests.
START = 600


@dataclass(frozen=True, slots=True)
class Served:
    """A server under way; ``log`` is what it has written."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def serving(model: Path, log: Path, *options: str, **environment: str) -> Iterator[Served]:
    """``vllm serve`` of ``model`` with the plugin, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port)]
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
def omni(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """clef-omni-tiny in bfloat16, as vLLM serves it by default."""
    log = tmp_path_factory.mktemp("vllm") / "omni.log"
    with serving(OMNI, log, "--dtype", "bfloat16", "--max-model-len", "16384") as served:
        yield served


@pytest.fixture(scope="session")
def serve() -> Callable[..., object]:
    """``serving``, for tests that need a server of their own; every start costs a minute."""
    return serving
