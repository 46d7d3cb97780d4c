"""What ``quaver serve`` is told reaches the server and the model."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from quaver.cli.main import app
from quaver.cli.sizes import size
from tests.conformance.conftest import free_port, wait_until_ready

BODY = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4GiB", 4 * 2**30),
        ("512mib", 512 * 2**20),
        ("1.5 KiB", 1536),
        ("1TiB", 2**40),
        ("4096", 4096),
        ("off", 0),
        ("0", 0),
    ],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "GiB", "4GB", "-1GiB", "1e9", "4 of them", "on"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write a number with KiB, MiB, GiB, TiB or nothing"):
        size(text)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with keys from the command line and a file, and no room for states."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("\nthird\n  fourth  \n")
    port = free_port()
    options = ["--api-key", "first,second", "--api-keys-file", keys, "--salt-by-key", "--state-cache", "off"]
    process = subprocess.Popen([sys.executable, "-m", "quaver", "serve", "--port", str(port), *options])
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.parametrize("key", ["first", "second", "third", "fourth"])
def test_every_key_opens(url: str, key: str) -> None:
    assert httpx.post(f"{url}/v1/systemone", json=BODY, headers={"x-api-key": key}).status_code == 200


def test_nothing_else_does(url: str) -> None:
    assert httpx.post(f"{url}/v1/systemone", json=BODY, headers={"x-api-key": "first,second"}).status_code == 401


def test_the_model_was_told_to_keep_no_state(url: str) -> None:
    assert "quaver_decider_state_cache_budget 0.0" in httpx.get(f"{url}/metrics").text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--salt-by-key"], "give at least one"),
        (["--api-keys-file", "nowhere.txt"], "nowhere.txt: cannot be read"),
        (["--api-keys-file", "EMPTY"], "has no API key in it"),
        (["--state-cache", "4GB"], "is not a size"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").write_text("\n")
    done = CliRunner().invoke(app, ["serve", *options])
    assert done.exit_code in (1, 2)
    told = " ".join(done.output.replace("│", " ").split()) + str(done.exception)
    assert message in told


def test_a_place_that_is_taken_is_told_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["serve", "nowhere/such-model", "--port", str(port)])
    assert f"cannot listen on 127.0.0.1:{port}" in str(done.exception)
    assert "loading" not in done.output
    # The same place when nobody has it: then the model is the mistake.
    done = CliRunner().invoke(app, ["serve", "./nowhere", "--port", str(port)])
    assert "cannot listen" not in str(done.exception) and "loading" in done.output
