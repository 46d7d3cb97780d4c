"""Our whole wire inside vLLM's API server: every path of ours leads to our app, whose decider asks vLLM's engine.

vLLM's own routes stay, but for those with the same path; so do ``/health`` and ``/metrics``, which has our metrics
among its own.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any

import prometheus_client
from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send
from vllm import envs
from vllm.engine.protocol import EngineClient

from quaver.media import DecoderPool, MediaPolicy, MediaReader
from quaver.server import ServerConfig, create_app
from quaver.server.auth import keys_in, require_key
from quaver.server.errors import Json
from quaver.server.routes import add_routes, listed
from quaver.server.service import service_of
from quaver.vllm_plugin.assemble import decider_over
from quaver.vllm_plugin.doors import one_door_each
from quaver.vllm_plugin.settings import VllmSettings

#: Paths that vLLM answers better: its own health, and all of its metrics.
THEIRS = ("/health", "/metrics")


class QuaverEndpoint:
    """See ``vllm.plugins.endpoint_plugins.interface.EndpointPlugin``."""

    name = "quaver"
    required_tasks = ("generate", "token_classify")

    def __init__(self) -> None:
        self._theirs: FastAPI | None = None
        self._ours: ASGIApp | None = None
        self._paths: list[APIRoute] = []
        self._closing = AsyncExitStack()

    def attach_router(self, app: FastAPI) -> None:
        """Every route of ours in front of vLLM's. What stands behind them comes with the engine."""
        self._theirs = app
        template = FastAPI()
        add_routes(template)
        self._paths = [
            self._handed_over(route)
            for route in template.routes
            if isinstance(route, APIRoute) and route.path not in THEIRS
        ]
        app.router.routes[:0] = self._paths
        lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def both(served: Any) -> AsyncIterator[Any]:
            async with self._closing, lifespan(served) as state:
                yield state

        app.router.lifespan_context = both

    async def init_state(self, engine_client: EngineClient | None, state: State, args: Namespace) -> None:
        """Our app over vLLM's engine. Raises what ``decider_over`` raises, which ends the server with the reason."""
        if engine_client is None or self._theirs is None:
            raise RuntimeError("quaver needs an engine; a server that only renders has none")
        settings = VllmSettings.of(engine_client.vllm_config.additional_config)
        folder = Path(settings.allow_media_dir) if settings.allow_media_dir else None
        policy = MediaPolicy(settings.allow_media_hosts, folder)
        decode = self._closing.enter_context(DecoderPool())
        decider = decider_over(engine_client, settings, MediaReader(policy=policy, decode=decode))
        keys = _keys(args, settings)
        names = tuple(path.name for path in state.openai_serving_models.base_model_paths)
        config = ServerConfig(api_keys=keys, salt_by_key=settings.salt_by_key, aliases=names)
        ours = create_app(decider, config, prometheus_client.REGISTRY)
        union = _models(state.openai_serving_models)
        ours.router.routes.insert(
            0, APIRoute("/v1/models", union, methods=["GET"], dependencies=[Depends(require_key)])
        )
        await self._closing.enter_async_context(ours.router.lifespan_context(ours))
        one_door_each(self._theirs, self._paths, keys)
        self._ours = ours

    def _handed_over(self, route: APIRoute) -> APIRoute:
        handed = copy(route)
        # Our document names schemas that vLLM's does not have.
        handed.include_in_schema = False
        handed.app = self._serve
        return handed

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._ours is not None
        await self._ours(scope, receive, send)


def _models(theirs: Any) -> Callable[[Request], Awaitable[Response]]:
    """The route of the models list: ours, with what vLLM says of its models and adapters in ``data``."""

    async def models(request: Request) -> Response:
        made = listed(service_of(request))
        cards = {card.id: card.model_dump() for card in (await theirs.show_available_models()).data}
        ours = [entry for entry in made["data"] if entry["id"] not in cards]
        return Json({**made, "data": [*cards.values(), *ours]})

    return models


def _keys(args: Namespace, settings: VllmSettings) -> tuple[str, ...]:
    """vLLM's keys, and those of a file."""
    given = [key for key in (args.api_key or [envs.VLLM_API_KEY]) if key]
    return (*given, *(keys_in(Path(settings.api_keys_file)) if settings.api_keys_file else ()))
