"""The two clients: the same but for ``await``. What a call says and what a reply means is in ``build``, once.

They are written out twice on purpose: what would join them, a call as a generator of requests, hides from readers and
from type checkers what a method does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import anyio
import httpx

from quaver.client.build import (
    BATCH_PATH,
    MODELS_PATH,
    PATH,
    build_batch,
    build_body,
    headers,
    parse_answers,
    parse_batch,
    parse_models,
    retry_delay,
    to_json,
)
from quaver.errors import QuaverError, Unavailable
from quaver.questions import Answers, Json, MediaSource, Question, Request

DEFAULT_URL = "http://127.0.0.1:8093"

#: States sent in one call, so that each call ends well within its timeout.
STATES_PER_CALL = 256


class Client:
    """Asks a Quaver server, or any server of the System One dialect.

    ``base_url`` is the server's root. A 429 or 503 is tried again ``retries`` times, after the time the server
    names. Raises the exceptions of ``quaver.errors``; ``Unavailable`` too when no server can be reached.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._model, self._retries = model, retries
        self._http = httpx.Client(base_url=base_url, headers=headers(api_key), timeout=timeout, transport=transport)

    def decide(
        self,
        state: Json,
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> Answers:
        """Answer every question about one state."""
        return self.ask(Request(state, questions, tuple(images), tuple(audio), tuple(videos)))

    def ask(self, request: Request) -> Answers:
        """``decide`` for a request that also says how it is to be read."""
        return parse_answers(self._send("POST", PATH, build_body(request, self._model)), request.questions)

    def decide_many(
        self,
        states: Sequence[Json],
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> list[Answers | QuaverError]:
        """Answer the same questions about each state, in order; a state that fails has its error in its place.

        Media are shown with every state. Only a Quaver server, or one with the same batch endpoint, can do this.
        """
        # Stands for all states: what is built of it leaves its own out.
        request = Request(None, questions, tuple(images), tuple(audio), tuple(videos))
        results: list[Answers | QuaverError] = []
        for start in range(0, len(states), STATES_PER_CALL):
            part = states[start : start + STATES_PER_CALL]
            response = self._send("POST", BATCH_PATH, build_batch(request, part, self._model))
            results += parse_batch(response, questions, len(part))
        return results

    def models(self) -> list[str]:
        """Names that the server knows its model by."""
        return parse_models(self._send("GET", MODELS_PATH))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        # Once for all attempts, which send the same bytes.
        content = None if body is None else to_json(body)
        response = self._once(method, path, content)
        for attempt in range(self._retries):
            delay = retry_delay(response, attempt)
            # The last response then stands, and becomes the exception that it is.
            if delay is None:
                break
            time.sleep(delay)
            response = self._once(method, path, content)
        return response

    def _once(self, method: str, path: str, content: bytes | None) -> httpx.Response:
        try:
            return self._http.request(method, path, content=content)
        # RequestError, and not only TransportError: a reply that cannot be decompressed is no answer either.
        except httpx.RequestError as error:
            raise Unavailable(f"no answer from {self._http.base_url}: {error!r}") from error


class AsyncClient:
    """``Client`` for asyncio and trio."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._model, self._retries = model, retries
        self._http = httpx.AsyncClient(
            base_url=base_url, headers=headers(api_key), timeout=timeout, transport=transport
        )

    async def decide(
        self,
        state: Json,
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> Answers:
        """Answer every question about one state."""
        return await self.ask(Request(state, questions, tuple(images), tuple(audio), tuple(videos)))

    async def ask(self, request: Request) -> Answers:
        """``decide`` for a request that also says how it is to be read."""
        return parse_answers(await self._send("POST", PATH, build_body(request, self._model)), request.questions)

    async def decide_many(
        self,
        states: Sequence[Json],
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> list[Answers | QuaverError]:
        """Answer the same questions about each state, in order; a state that fails has its error in its place.

        Media are shown with every state. Only a Quaver server, or one with the same batch endpoint, can do this.
        """
        request = Request(None, questions, tuple(images), tuple(audio), tuple(videos))
        results: list[Answers | QuaverError] = []
        for start in range(0, len(states), STATES_PER_CALL):
            part = states[start : start + STATES_PER_CALL]
            response = await self._send("POST", BATCH_PATH, build_batch(request, part, self._model))
            results += parse_batch(response, questions, len(part))
        return results

    async def models(self) -> list[str]:
        """Names that the server knows its model by."""
        return parse_models(await self._send("GET", MODELS_PATH))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        content = None if body is None else to_json(body)
        response = await self._once(method, path, content)
        for attempt in range(self._retries):
            delay = retry_delay(response, attempt)
            if delay is None:
                break
            # Not asyncio's, so that trio can run it too.
            await anyio.sleep(delay)
            response = await self._once(method, path, content)
        return response

    async def _once(self, method: str, path: str, content: bytes | None) -> httpx.Response:
        try:
            return await self._http.request(method, path, content=content)
        except httpx.RequestError as error:
            raise Unavailable(f"no answer from {self._http.base_url}: {error!r}") from error
