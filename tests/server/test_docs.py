"""docs/server.md and docs/wire.md say what the server does."""

import json
import re
from pathlib import Path

from fastapi.routing import APIRoute

from quaver.protocol import BatchCall, DecisionsCall, SystemOneCall, parse_batch, parse_wire
from quaver.server.errors import TABLE
from quaver.server.metrics import STATS
from tests.server.conftest import Http

DOCS = Path(__file__).parents[2] / "docs"
SERVER, WIRE = (DOCS / "server.md").read_text(), (DOCS / "wire.md").read_text()


def test_the_paths_are_the_routes(http: Http) -> None:
    section = SERVER.partition("## Paths")[2].partition("##")[0]
    written = set(re.findall(r"`(?:GET |POST )?(/[\w/{}-]+)`", section))
    routes = {route.path.replace(":path", "") for route in http.app.routes if isinstance(route, APIRoute)}
    assert written == routes


def test_the_requests_are_read() -> None:
    bodies = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", WIRE, re.DOTALL)]
    requests = [body for body in bodies if "questions" in body]
    read = [parse_batch(body) if "states" in body else parse_wire(body) for body in requests]
    assert [type(call) for call in read] == [SystemOneCall, DecisionsCall, BatchCall]


def test_the_error_codes_are_the_table() -> None:
    section = WIRE.partition("## Errors")[2]
    assert {code for *_, code in TABLE} <= set(re.findall(r"`(\w+)`", section))


def test_the_metrics_are_there(http: Http) -> None:
    http.ask()
    text = http("GET", "/metrics").text
    for name in re.findall(r"`(quaver_\w+)[*{`]", SERVER):
        assert name in text
    section = SERVER.partition("own numbers")[2].partition("## ")[0]
    assert set(STATS) <= set(re.findall(r"`(\w+)`", section))
