"""A small engine behind real HTTP that can be told to lie, in the ways in which deployments do."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Body = dict[str, Any]


@dataclass
class Engine:
    """Answers chat calls as vLLM does. ``lie`` may change a reply; ``told`` are the documents by path."""

    model: str = "reader@base"
    fingerprint: str = "base|sha256:abc"
    strict_name: bool = True
    told: dict[str, Any] = field(default_factory=lambda: {"/version": {"version": "0.33.0"}})
    answer: Callable[[Body], str] = lambda body: json.dumps({"seen": budget(body)})
    lie: Callable[[Body, Body, int], Body] = lambda _body, reply, _call: reply
    status: Callable[[Body, int], int] = lambda _body, _call: 200
    calls: int = 0
    finish: Callable[[Body], str] = lambda _body: "stop"

    def chat(self, body: Body) -> tuple[int, Body]:
        self.calls += 1
        status = self.status(body, self.calls)
        if status != 200:
            return status, {"error": {"message": "no"}}
        if self.strict_name and body.get("model") != self.model:
            return 404, {"error": {"message": f"no model {body.get('model')}"}}
        choice = {"message": {"content": self.answer(body)}, "finish_reason": self.finish(body)}
        details = {"multimodal_tokens": {"image": budget(body) + 2}, "cached_tokens": 0}
        reply = {
            "id": f"chat-{self.calls}",
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": [choice],
            "usage": {"prompt_tokens": budget(body) + 37, "prompt_tokens_details": details},
        }
        return 200, self.lie(body, reply, self.calls)


def budget(body: Body) -> int:
    """Soft tokens of one image at the request's budget; 1,092 for 1,120 and 532 for 560."""
    return {1120: 1092, 560: 532}[body.get("mm_processor_kwargs", {}).get("max_soft_tokens", 1120)]


def _handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # headers and body in one packet; two would wait for each other

        def do_GET(self) -> None:
            told = engine.told.get(self.path.split("?")[0])
            self._send(404 if told is None else 200, told)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path in engine.told:
                told = engine.told[self.path]
                self._send(200, told(body) if callable(told) else told)
            else:
                self._send(*engine.chat(body))

        def _send(self, status: int, content: Any) -> None:
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Engine, str]]]:
    """Starts an engine from its fields, and gives it and its address."""
    running = []

    def start(**fields: Any) -> tuple[Engine, str]:
        engine = Engine(**fields)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(engine))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        running.append(server)
        return engine, f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()
