"""A server with real models, a host and a folder that it may read media from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from asking import FOLDER
from vectors import FLASH, OMNI

import quaver
from quaver.decider import Decider
from quaver.media import DecoderPool, MediaPolicy, MediaReader


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """An HTTP server with the golden media; its ``HOST:PORT``."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(FOLDER))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"localhost:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="session")
def decoders() -> Iterator[DecoderPool]:
    with DecoderPool(processes=1) as pool:
        yield pool


@pytest.fixture(scope="session")
def load(host: str, decoders: DecoderPool) -> Callable[..., Decider[Any]]:
    """Loads the tiny Clef-flash afresh; it may fetch from ``host`` and read the golden media."""
    policy = MediaPolicy((host,), FOLDER, allow_addresses={"localhost": ["127.0.0.1", "::1"]})
    media = MediaReader(policy=policy, decode=decoders)
    return partial(quaver.load, str(FLASH), dtype="float32", media=media)


@pytest.fixture(scope="session")
def decider(load: Callable[..., Decider[Any]]) -> Decider[Any]:
    return load(deterministic=True)


@pytest.fixture(scope="session")
def flash(decider: Decider[Any], serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """``decider`` behind HTTP."""
    with httpx.Client(base_url=serving(decider).url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def reader(serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """The embedded model, which reads text alone."""
    with httpx.Client(base_url=serving(quaver.load()).url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def omni(decoders: DecoderPool, serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """The tiny Clef-omni, which also hears; it may read its golden media."""
    media = MediaReader(policy=MediaPolicy(folder=OMNI / "media"), decode=decoders)
    decider = quaver.load(str(OMNI), dtype="float32", deterministic=True, media=media)
    with httpx.Client(base_url=serving(decider).url, timeout=60) as client:
        yield client
