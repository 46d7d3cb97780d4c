"""Requests with media wait in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
from asking import QUESTIONS, TEXT

from quaver.questions import Answers, Request
from quaver.server import ServerConfig
from quaver.testing import FakeDecider


def test_media_that_take_their_time_hold_up_no_text(running: Callable[..., Any]) -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    class Slow(FakeDecider):
        def submit(self, request: Request) -> Future[Answers]:
            if request.images:
                entered.release()
                assert release.wait(60)
            return super().submit(request)

    server = running(Slow(), ServerConfig(media_threads=2, prepare_threads=1))
    body = {"state": TEXT, "questions": QUESTIONS}
    with ThreadPoolExecutor(3) as callers, httpx.Client(base_url=server.url, timeout=60) as client:
        waiting = [
            callers.submit(httpx.post, f"{server.url}/v1/systemone", json={**body, "images": ["AAAA"]}, timeout=60)
            for _ in range(3)
        ]
        for _ in range(2):
            assert entered.acquire(timeout=60)
        assert client.post("/v1/systemone", json=body).status_code == 200
        assert not any(reply.done() for reply in waiting)
        release.set()
        assert [reply.result().status_code for reply in waiting] == [200] * 3
