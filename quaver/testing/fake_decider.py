"""A decider without a model: its probabilities come from a hash of the state and the question.

Ids, neighbours and order change nothing, as with an independent read. It can be made slow, full or failing,
and holds whatever request it is told to, so that tests of servers and clients need no model.
"""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from quaver.errors import Unavailable
from quaver.protocol import parse, reply
from quaver.questions import Answers, Json, MediaSource, Question, Request, answer


class FakeDecider:
    """Answers at once, or after ``gate`` is set, or with ``error``.

    ``error`` is raised by ``submit`` when ``early``, else it arrives through the future. ``requests`` has every
    request that was submitted, ``dropped`` counts those cancelled before they were answered.
    """

    def __init__(
        self,
        name: str = "fake-1",
        *,
        gate: threading.Event | None = None,
        error: Exception | None = None,
        early: bool = True,
        truncated_tokens: int = 0,
    ) -> None:
        self.name = name
        self.ready = True
        self.config: dict[str, Json] = {}
        self.requests: list[Request] = []
        self.dropped = 0
        self.error = error
        self._gate, self._early, self._truncated = gate, early, truncated_tokens
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fake-decider")

    def submit(self, request: Request) -> Future[Answers]:
        if not self.ready:
            raise Unavailable("the fake decider is closed")
        if self.error and self._early:
            raise self.error
        self.requests.append(request)
        future: Future[Answers] = Future()
        future.add_done_callback(self._count_dropped)
        self._pool.submit(self._answer, request, future)
        return future

    def decide(
        self,
        state: Json,
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> Answers:
        return self.submit(Request(state, questions, tuple(images), tuple(audio), tuple(videos))).result()

    def systemone(self, body: dict[str, Any]) -> dict[str, Any]:
        call = parse(body)
        return reply(call, self.submit(call.request).result())

    decisions = systemone

    def stats(self) -> dict[str, int]:
        return {"tokens_computed": len(self.requests), "tokens_reused": 0, "state_cache_bytes": 0}

    def close(self) -> None:
        """Answer what was accepted, then refuse everything."""
        self.ready = False
        self._pool.shutdown(wait=True)

    def _count_dropped(self, future: Future[Answers]) -> None:
        self.dropped += future.cancelled()

    def _answer(self, request: Request, future: Future[Answers]) -> None:
        if self._gate:
            self._gate.wait()
        if not future.set_running_or_notify_cancel():
            return
        if self.error:
            future.set_exception(self.error)
            return
        rule = request.confidence or "typesafe"
        answers = {name: answer(q, _probabilities(request, q), rule) for name, q in request.questions.items()}
        tokens = 8 + len(str(request.state)) // 4
        reading = request.reading or "independent"
        future.set_result(
            Answers(answers, self.name, reading, tokens, truncated_tokens=self._truncated, config=self.config)
        )


def _probabilities(request: Request, question: Question) -> list[float]:
    """A softmax over numbers that only the state, the media and this question decide."""
    media = (request.images, request.audio, request.videos)
    criteria = dict(question.criteria) if isinstance(question.criteria, Mapping) else question.criteria
    content = [request.state, question.type, question.instructions, criteria, media]
    # By the text, whose hash Python keeps the same between processes; hash() of a tuple is salted.
    seeded = random.Random(json.dumps(content, default=str, sort_keys=True))
    weights = [math.exp(seeded.gauss(0, 1.5)) for _ in question.option_ids]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
