"""A server of either engine, as a process of its own on a free port, until a block ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import httpx
from engine_timing import Seconds, in_turns

Engine = Literal["quaver", "vllm"]
ROOT = Path(__file__).parents[1]
#: vLLM pins its own releases of what both use, so it may have an environment to itself.
OWN = ROOT / ".venv-vllm/bin/python"
#: Seconds; vLLM compiles on its first start.
START = 900
#: GiB on a CPU, in either engine, for states that may come again.
KEPT = 4
#: What vLLM's workers do on a CPU: as many threads as any process, bound to no core.
CPU = {"VLLM_CPU_KVCACHE_SPACE": str(KEPT), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": str(ROOT)}
KEEPS = {"VLLM_CACHE_ROOT": str(ROOT / ".cache/vllm"), "VLLM_CONFIG_ROOT": str(ROOT / ".cache/vllm")}
#: Seconds after which both servers sleep: vLLM's worker looks for work without a pause for one after its last step.
REST = 1.5


def python(engine: Engine) -> str | None:
    """Which interpreter serves; None where vLLM is not installed."""
    if engine == "quaver" or find_spec("vllm"):
        return sys.executable
    return str(OWN) if OWN.exists() else None


@contextmanager
def serving(engine: Engine, model: Path, *options: str) -> Iterator[str]:
    """The base URL of ``quaver serve MODEL``. Raises RuntimeError with the end of its log when it does not start.

    Whoever ends this process by SIGTERM, as ``timeout`` does, ends the server too.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interpreter = python(engine)
    if interpreter is None:
        raise RuntimeError("vLLM is not installed; scripts/environment vllm makes an environment with it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [interpreter, "-m", "quaver", "serve", str(model), "--engine", engine, "--port", str(port), *options]
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**CPU, **QUIET, **KEEPS, **os.environ},
            start_new_session=True,
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


def rest() -> None:
    """Until who answered last takes no time from who is asked next."""
    time.sleep(REST)


def servers_in_turns(rounds: int, sides: Callable[[int], Mapping[Engine, Callable[[], object]]]) -> Seconds:
    """``in_turns`` after a round that is not counted; nobody is asked before both servers sleep."""
    in_turns(1, lambda _: sides(-1), rest)
    return in_turns(rounds, sides, rest)
