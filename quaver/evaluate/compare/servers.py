"""Servers as the comparison meets them: what they say about themselves, and what they answer.

A read-back is one document, ``{part: what the server said}``; a proof points into it. A part that the
server does not have is absent, so a proof that needs it fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx
from prometheus_client.parser import text_string_to_metric_families

from quaver.errors import BadRequest, QuaverError, ServerError, Unavailable
from quaver.evaluate.compare.plan import Arm, Endpoint
from quaver.questions import Json

PATHS: Mapping[Endpoint, str] = {
    "chat": "/v1/chat/completions",
    "systemone": "/v1/systemone",
    "decisions": "/v1/decisions",
}

#: Server kind to (part, paths of which the first that answers counts).
READ_BACK: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "quaver": (("models", ("/v1/models",)),),
    "vllm": (
        ("version", ("/version",)),
        ("models", ("/v1/models",)),
        ("server_info", ("/server_info?config_format=json",)),
        ("metrics", ("/metrics",)),
    ),
    "sglang": (
        ("model_info", ("/model_info", "/get_model_info")),
        ("server_info", ("/server_info", "/get_server_info")),
        ("models", ("/v1/models",)),
    ),
    "llama.cpp": (("props", ("/props",)), ("models", ("/v1/models",))),
    "ollama": (
        ("version", ("/api/version",)),
        ("tags", ("/api/tags",)),
        ("show", ("/api/show",)),
        ("ps", ("/api/ps",)),
    ),
}

#: Servers whose replies repeat the model name of the request, whatever they serve: it proves nothing.
ECHOES_MODEL = frozenset({"sglang", "llama.cpp"})

#: Attempts of one call. 500 counts as passing: engines that restart, or lack memory for a moment, say so.
ATTEMPTS = 4
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Decides(Protocol):
    """A decider in this process."""

    @property
    def name(self) -> str: ...

    def systemone(self, body: dict[str, Any]) -> dict[str, Any]: ...

    def decisions(self, body: dict[str, Any]) -> dict[str, Any]: ...


class Server(Protocol):
    """One arm's server."""

    def read_back(self) -> dict[str, Json]:
        """What the server says about itself, without being asked to work."""

    def ask(self, body: dict[str, Json]) -> tuple[dict[str, Any], int]:
        """The reply to one body, and how many attempts it took. Raises QuaverError after the last."""


class HttpServer:
    """A server behind HTTP. ``model`` is the name asked for; Ollama tells about one model at a time.

    ``seconds`` is the time limit of a call, ``pause`` what is doubled between attempts.
    """

    def __init__(
        self,
        kind: str,
        url: str,
        endpoint: Endpoint,
        *,
        model: str = "",
        key: str = "",
        seconds: float = 600,
        pause: float = 0.25,
    ) -> None:
        self._kind, self._path, self._model, self._pause = kind, PATHS[endpoint], model, pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, timeout=seconds, headers=headers)

    def read_back(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for part, paths in READ_BACK[self._kind]:
            for path in paths:
                said = self._say(path)
                if said is not None:
                    found[part] = said
                    break
        return found

    def ask(self, body: dict[str, Json]) -> tuple[dict[str, Any], int]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._post(body), attempt
            except (ServerError, Unavailable) as error:
                passing = not isinstance(error, ServerError) or error.status in PASSING
                if attempt == ATTEMPTS or not passing:
                    raise
                time.sleep(self._pause * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _post(self, body: dict[str, Json]) -> dict[str, Any]:
        try:
            reply = self._http.post(self._path, json=body)
        except httpx.TransportError as error:
            raise Unavailable(f"{self._http.base_url}: {error}") from error
        if reply.status_code != 200:
            raise ServerError(f"{reply.status_code}: {reply.text[:300]}", reply.status_code)
        try:
            value = reply.json()
        except ValueError as error:
            raise ServerError(f"the reply is not JSON: {reply.text[:100]}", 502) from error
        if not isinstance(value, dict):
            raise ServerError("the reply is not a JSON object", 502)
        return value

    def _say(self, path: str) -> Json:
        """What the server says at ``path``; None when it says nothing there."""
        try:
            shown = {"model": self._model}
            reply = self._http.post(path, json=shown) if path == "/api/show" else self._http.get(path)
            if reply.status_code != 200:
                return None
            return _labels(reply.text) if path == "/metrics" else reply.json()
        except (httpx.TransportError, ValueError):
            return None


class LocalServer:
    """A decider in this process."""

    def __init__(self, decider: Decides, endpoint: Endpoint) -> None:
        if endpoint == "chat":
            raise QuaverError("a local arm decides; it has no chat endpoint")
        self._decider, self._endpoint = decider, endpoint

    def read_back(self) -> dict[str, Json]:
        return {"models": {"models": [{"name": self._decider.name}]}}

    def ask(self, body: dict[str, Json]) -> tuple[dict[str, Any], int]:
        asked = self._decider.systemone if self._endpoint == "systemone" else self._decider.decisions
        return asked(body), 1


def connect(arm: Arm, endpoint: Endpoint) -> HttpServer:
    """The HTTP server of an arm; its key is read from the environment now, and is never recorded.

    Raises BadRequest when the variable that should hold the key is not set.
    """
    if arm.key_env and arm.key_env not in os.environ:
        raise BadRequest(f"arm {arm.name}: the environment has no {arm.key_env}, which should hold its key")
    key = os.environ[arm.key_env] if arm.key_env else ""
    return HttpServer(arm.server, arm.url, endpoint, model=str(arm.request.get("model", "")), key=key)


def _labels(text: str) -> dict[str, dict[str, str]]:
    """Labels of the ``..._info`` metrics, which carry configuration; counters move and prove nothing."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.name: dict(sample.labels) for sample in samples if sample.name.endswith("_info")}
