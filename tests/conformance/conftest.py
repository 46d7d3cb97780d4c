"""Real server processes, one without and one with a key, that the whole folder talks to."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

#: Everything that starts a server; ``--port P`` and ``--api-key K`` are appended.
COMMAND = [sys.executable, "-m", "quaver", "serve"]

KEY = "a-key-for-tests"


@dataclass(frozen=True)
class Server:
    url: str
    key: str | None


@pytest.fixture(scope="session")
def open_server() -> Iterator[Server]:
    with running(None) as server:
        yield server


@pytest.fixture(scope="session")
def locked_server() -> Iterator[Server]:
    with running(KEY) as server:
        yield server


@contextmanager
def running(key: str | None) -> Iterator[Server]:
    port = free_port()
    command = [*COMMAND, "--port", str(port), *(["--api-key", key] if key else [])]
    process = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, process)
        yield Server(url, key)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server was not ready within {seconds} s")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
