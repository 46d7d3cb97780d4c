"""The endpoints. Every decision path takes both dialects: the body says which one it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request, Response, params
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from quaver.errors import Unavailable
from quaver.protocol import (
    BatchCall,
    BatchError,
    Call,
    check_model,
    dialect_of,
    loads,
    models_list,
    parse_batch,
    parse_wire,
    reply,
)
from quaver.questions import Answers
from quaver.server.auth import require_key, salted
from quaver.server.batch import answer_states
from quaver.server.body import Body, read_body
from quaver.server.errors import Json, dialect_of_request, error_body
from quaver.server.openapi import described
from quaver.server.service import Service, service_of
from quaver.server.waiting import in_time, while_connected

#: Where clients of hosted variants send what ``/v1/systemone`` and ``/v1/decisions`` take.
OTHER_PATHS = (
    "/systemone",
    "/decisions",
    # OpenRouter. Its decisions path carries a System One body, which is why no path decides the dialect.
    "/api/v1/systemone",
    "/api/alpha/decisions",
    # Fireworks.
    "/inference/v1/systemone",
    "/inference/v1/decisions",
    # Vercel's gateway and vlm.run.
    "/typesafe/v1/systemone",
    # Alibaba's Model Studio.
    "/compatible-mode/v1/systemone",
)
#: With and without what Cloudflare's SDKs take for the base URL.
CLOUDFLARE_PATHS = ("/client/v4/accounts/{account}/ai/run/{model:path}", "/accounts/{account}/ai/run/{model:path}")


def add_routes(app: FastAPI) -> None:
    """All routes; what they work with is on ``app.state.service``."""
    locked = [Depends(require_key)]
    counted = [Depends(count_as_decision), *locked]
    for name in ("systemone", "decisions"):
        app.add_api_route(f"/v1/{name}", decide, methods=["POST"], dependencies=counted, **described(name))
    app.add_api_route("/v1/systemone/batch", decide_batch, methods=["POST"], dependencies=counted, **described("batch"))
    for path in OTHER_PATHS:
        app.add_api_route(path, decide, methods=["POST"], dependencies=counted, include_in_schema=False)
    # Before the key is looked at, so that its refusal comes in the envelope too.
    enveloped = [Depends(answer_in_envelope), *counted]
    for path in CLOUDFLARE_PATHS:
        app.add_api_route(path, decide_cloudflare, methods=["POST"], dependencies=enveloped, include_in_schema=False)
    _add_read(app, "/v1/models", models, "models", locked)
    _add_read(app, "/healthz", health, "health")
    app.add_api_route("/health", health, methods=["GET", "HEAD"], include_in_schema=False)
    _add_read(app, "/readyz", ready, "ready")
    _add_read(app, "/metrics", metrics, "metrics")


def _add_read(
    app: FastAPI, path: str, endpoint: Callable[..., Any], name: str, dependencies: Sequence[params.Depends] = ()
) -> None:
    """A route that only tells something. HEAD is what some balancers check health with; FastAPI does not imply it."""
    app.add_api_route(path, endpoint, methods=["GET"], dependencies=dependencies, **described(name))
    app.add_api_route(path, endpoint, methods=["HEAD"], dependencies=dependencies, include_in_schema=False)


async def answer_in_envelope(request: Request) -> None:
    """Put the reply, or the error in its place, into Cloudflare's envelope."""
    request.state.cloudflare = True


async def count_as_decision(request: Request) -> None:
    """Give the request a dialect, by its path until its body is read; requests that have one are counted."""
    request.state.dialect = dialect_of_request(request)


async def decide(request: Request) -> Response:
    """Answer the questions of a body in the dialect that it speaks."""
    body, headers = await _answer(request, None)
    return Json(body, headers=headers)


async def decide_cloudflare(request: Request, model: str) -> Response:
    """The same with the model in the path and the reply in Cloudflare's envelope."""
    body, headers = await _answer(request, model)
    return Json({"result": body, "success": True, "errors": [], "messages": []}, headers=headers)


async def decide_batch(request: Request) -> Response:
    """Answer the same questions about many states; a state that fails has its error in its place."""
    service, loop = service_of(request), asyncio.get_running_loop()
    with service.admitted():
        body = await read_body(request, service.config.max_body_bytes)
        arrived = loop.time()
        call = await loop.run_in_executor(service.pool, _parse_batch, service, body)
        states = answer_states(service, call, lambda index: salted(request, call.request(index)), arrived)
        results = [_result(result) for result in await while_connected(request, states)]
    service.metrics.batch_answered(results)
    facts = _facts([result for result in results if isinstance(result, Answers)])
    made = call.reply(service.decider.name, results)
    # Ten thousand results are megabytes of text, too long to write while others wait for the loop.
    return await loop.run_in_executor(service.pool, lambda: Json(made, headers=facts))


async def models(request: Request) -> Response:
    """The served model, the names it answers to and how it reads."""
    return Json(listed(service_of(request)))


def listed(service: Service) -> dict[str, Any]:
    """The list that ``models`` replies with."""
    return models_list(service.decider.name, service.decider.config, service.config.aliases)


async def health() -> Response:
    """The process runs."""
    return Json({"ok": True})


async def ready(request: Request) -> Response:
    """The model can answer."""
    if not service_of(request).decider.ready:
        raise Unavailable("the model is not ready")
    return Json({"ready": True})


async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    return PlainTextResponse(service_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _answer(request: Request, path_model: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The reply body and the headers that go with it."""
    service = service_of(request)
    with service.admitted():
        body = await read_body(request, service.config.max_body_bytes)
        loop = asyncio.get_running_loop()
        # A slow upload is not held against the time that the caller gave us.
        arrived = loop.time()
        call = await loop.run_in_executor(service.pool, _parse, service, request, body, path_model)
        asked = salted(request, call.request)
        # Two threads, because only a parsed body says whether it has media, which may take long to fetch.
        job = await loop.run_in_executor(service.pool_for(asked), service.decider.submit, asked)
        answers = await while_connected(request, in_time(job, arrived, call.request.timeout))
    service.metrics.answered(answers)
    return reply(call, answers), _facts([answers])


def _facts(answered: Sequence[Answers]) -> dict[str, str]:
    """Headers that say, in either dialect, what a strict reply body has no place for."""
    cut = sum(answers.truncated_tokens for answers in answered)
    calibration = next((answers.calibration for answers in answered), None)
    headers = {"x-quaver-truncated": str(cut)} if cut else {}
    return {**headers, "x-quaver-calibration": calibration} if calibration else headers


def _parse(service: Service, request: Request, body: Body, path_model: str | None) -> Call:
    """What a body asks; in a thread because long texts take their time here."""
    value = loads(body.json)
    request.state.dialect = dialect_of(value, request.state.dialect)
    call = parse_wire(value, body.attachments)
    # After the body's own faults, so that the dialect of the refusal is known.
    check_model(path_model or call.model, service.decider.name, service.config.aliases)
    return call


def _parse_batch(service: Service, body: Body) -> BatchCall:
    call = parse_batch(loads(body.json), body.attachments)
    check_model(call.model, service.decider.name, service.config.aliases)
    return call


def _result(result: Answers | Exception) -> Answers | BatchError:
    if isinstance(result, Answers):
        return result
    status, body = error_body(result, "systemone")
    return {"status": status, **body}
