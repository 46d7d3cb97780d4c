"""A server of either engine, as a process of its own on a free port, until a block ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import httpx

Engine = Literal["quaver", "vllm"]
ROOT = Path(__file__).parents[1]
#: vLLM pins its own releases of what both use, so it may have an environment to itself.
OWN = ROOT / ".venv-vllm/bin/python"
#: Seconds; vLLM compiles on its first start.
START = 900
#: What vLLM's workers do on a CPU: memory for small models, and as many threads as any process.
CPU = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": str(ROOT)}


def python(engine: Engine) -> str | None:
    """Which interpreter serves; None where vLLM is not installed."""
    if engine == "quaver" or find_spec("vllm"):
        return sys.executable
    return str(OWN) if OWN.exists() else None


@contextmanager
def serving(engine: Engine, model: Path, *options: str) -> Iterator[str]:
    """The base URL of ``quaver serve MODEL``. Raises RuntimeError with the end of its log when it does not start."""
    interpreter = python(engine)
    if interpreter is None:
        raise RuntimeError("vLLM is not installed; scripts/environment vllm makes an environment with it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [interpreter, "-m", "quaver", "serve", str(model), "--engine", engine, "--port", str(port), *options]
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**CPU, **QUIET, **os.environ}, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _ready(url, process):
                raise RuntimeError(f"{' '.join(command)} did not start:\n{Path(log.name).read_text()[-3000:]}")
            yield url
        finally:
            # vLLM's engine and workers are of the same group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + START
    while process.poll() is None and time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return True
        time.sleep(0.5)
    return False


def posted(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to a body, without the name of its model: each server serves one, under a name of its own.

    Raises RuntimeError with what the server says against it.
    """
    reply = client.post("/v1/systemone", json={key: value for key, value in body.items() if key != "model"})
    if reply.is_error:
        raise RuntimeError(reply.text)
    answered: dict[str, Any] = reply.json()
    return answered
