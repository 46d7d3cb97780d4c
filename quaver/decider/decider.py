"""The decider: questions in, answers out."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic

from quaver.decider.batch import decide_many
from quaver.decider.family import EncodedView, Family, Limits, Prepared, PromptEngine, Scored
from quaver.decider.media import check_budget, media_placed
from quaver.engine.job import Finished, Prompt
from quaver.errors import BadRequest, QuaverError
from quaver.models.placement import on_one_core
from quaver.protocol import local_media, parse, reply
from quaver.questions import (
    Answer,
    Answers,
    ConfidenceRule,
    Json,
    MediaSource,
    OverflowRule,
    Question,
    ReadingMode,
    Request,
    Timing,
    answer,
)
from quaver.questions.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Settings:
    """How a decider answers unless a request says otherwise. ``reading`` None takes the model's own.

    A ``calibration`` is applied to every answer and must have been fitted on this very model.
    """

    reading: ReadingMode | None = None
    on_overflow: OverflowRule = "truncate"
    confidence: ConfidenceRule = "typesafe"
    calibration: Calibration | None = None

    def check(self, name: str, readings: Sequence[ReadingMode]) -> None:
        """BadRequest or BadRelease for a setting that is not for the model ``name``, which has these ``readings``."""
        if self.reading is not None:
            _check_reading(self.reading, name, readings)
        if self.calibration:
            self.calibration.require(name)


class Decider(Generic[Prompt]):
    """A loaded model that answers requests: ``family`` writes them as prompts, ``engine`` reads those.

    Safe to share between threads; close it, and the engine with it, when done.
    """

    def __init__(self, family: Family[Prompt], engine: PromptEngine[Prompt], settings: Settings | None = None) -> None:
        self._family = family
        self._engine = engine
        self._settings = settings or Settings()
        self._settings.check(family.name, family.readings)

    @property
    def name(self) -> str:
        """The model's versioned name, which every reply carries."""
        return self._family.name

    @property
    def limits(self) -> Limits:
        return self._family.limits

    @property
    def config(self) -> Mapping[str, Json]:
        """What can be set about how the model reads, as it is in force unless a request says otherwise."""
        return self._family.config

    @property
    def ready(self) -> bool:
        return self._engine.ready

    def decide(
        self,
        state: Json,
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> Answers:
        """Answer every question about one state. Raises a ``QuaverError`` when that cannot be done."""
        images, audio, videos = (tuple(map(local_media, sources)) for sources in (images, audio, videos))
        return self.submit(Request(state, questions, images, audio, videos)).result()

    def decide_many(
        self,
        states: Sequence[Json],
        questions: Mapping[str, Question],
        *,
        images: Sequence[MediaSource] = (),
        audio: Sequence[MediaSource] = (),
        videos: Sequence[MediaSource] = (),
    ) -> list[Answers | QuaverError]:
        """Answer the same questions about each state, in order; a state that fails has its error in its place."""
        images, audio, videos = (tuple(map(local_media, sources)) for sources in (images, audio, videos))
        return decide_many(self.submit, (Request(state, questions, images, audio, videos) for state in states))

    def submit(self, request: Request) -> Future[Answers]:
        """Prepare a request in this thread and queue it. Cancelling the future drops it."""
        started = time.monotonic()
        deadline = None if request.timeout is None else started + request.timeout
        reading, on_overflow = self._reading(request.reading), request.on_overflow or self._settings.on_overflow
        thresholds = self._thresholds(request)
        self._check_labels(request)
        check_budget(request, self.name, self.limits)
        with media_placed(request, self.name, self.limits), on_one_core():
            prepared = self._family.prepare(request, reading, on_overflow)
        prepare = time.monotonic() - started

        outer: Future[Answers] = Future()
        inner = self._engine.submit(prepared.prompts, request.priority, deadline)
        # The engine holds the inner one until it is answered. If each of the two held the other, the pixels of the
        # request would stay until the garbage collector comes, which is thousands of requests later.
        waiting = weakref.ref(inner)

        def drop(done: Future[Answers]) -> None:
            if done.cancelled() and (still := waiting()) is not None:
                still.cancel()

        def finish(done: Future[Finished]) -> None:
            if done.cancelled() or not outer.set_running_or_notify_cancel():
                return
            if (failed := done.exception()) is not None:
                outer.set_exception(failed)
                return
            try:
                outer.set_result(self._answers(request, prepared, done.result(), thresholds, prepare))
            except Exception as error:
                outer.set_exception(error)

        outer.add_done_callback(drop)
        inner.add_done_callback(finish)
        return outer

    def systemone(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a ``/v1/systemone`` body."""
        return self._reply(body)

    def decisions(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a ``/v1/decisions`` body."""
        return self._reply(body)

    def encode(self, body: dict[str, Any]) -> EncodedView:
        """The token ids, spans and option order that a body of either dialect becomes."""
        request = parse(body).request
        on_overflow = request.on_overflow or self._settings.on_overflow
        with media_placed(request, self.name, self.limits):
            return self._family.view(request, self._reading(request.reading), on_overflow)

    def stats(self) -> dict[str, int]:
        """Counters and sizes: at least ``tokens_computed``, ``tokens_reused``, ``state_cache_bytes``."""
        return self._engine.stats()

    def close(self) -> None:
        """Answer what was accepted, then stop. Later requests are refused."""
        self._engine.close()

    def __enter__(self) -> Decider[Prompt]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        call = parse(body)
        return reply(call, self.submit(call.request).result())

    def _reading(self, asked: ReadingMode | None) -> ReadingMode:
        reading = asked or self._settings.reading or self._family.readings[0]
        _check_reading(reading, self.name, self._family.readings)
        return reading

    def _check_labels(self, request: Request) -> None:
        if request.labels.wanted and not self._family.reads_labels:
            raise BadRequest(
                f"{self.name} does not read labels; leave out x_min_label_mass, x_prior_correction and x_option_orders"
            )

    def _thresholds(self, request: Request) -> dict[str, float] | None:
        """The least largest probability at which each question is answered; None when abstention was not asked for."""
        if request.abstain is None:
            return None
        if self._settings.calibration is None:
            raise BadRequest("x_abstain needs a calibration; serve the model with one, or leave it out", ("x_abstain",))
        target, of = request.abstain.target, request.abstain.of
        return {
            name: self._settings.calibration.threshold(question.type, target, of)
            for name, question in request.questions.items()
        }

    def _answers(
        self,
        request: Request,
        prepared: Prepared[Prompt],
        done: Finished,
        thresholds: Mapping[str, float] | None,
        prepare: float,
    ) -> Answers:
        rule, calibration = request.confidence or self._settings.confidence, self._settings.calibration
        scores = dict(zip(request.questions, prepared.scores(done.readings), strict=True))
        answers: dict[str, Answer] = {}
        largest: dict[str, float] = {}
        for name, question in request.questions.items():
            p = [scores[name].probabilities[option] for option in question.option_ids]
            p = calibration.apply(question.type, p) if calibration else p
            answers[name], largest[name] = answer(question, p, rule), max(p)
        return Answers(
            answers,
            model=self.name,
            reading=self._reading(request.reading),
            input_tokens=prepared.input_tokens,
            cached_tokens=sum(reading.reused for reading in done.readings) + prepared.known_tokens,
            truncated_tokens=prepared.truncated_tokens,
            timing=Timing(prepare, done.queued, done.prefill, done.head),
            calibration=calibration.id if calibration else None,
            abstained=_abstained(scores, largest, thresholds),
            config=_in_force(self.config, request),
            labels={name: scored.labels for name, scored in scores.items() if scored.labels} or None,
        )


def _check_reading(reading: ReadingMode, name: str, readings: Sequence[ReadingMode]) -> None:
    if reading not in readings:
        known = " or ".join(readings)
        raise BadRequest(f'reading "{reading}" is not one that {name} has; use {known}', ("x_reading",))


def _in_force(config: Mapping[str, Json], request: Request) -> Mapping[str, Json]:
    """The settings that a request was answered under."""
    return config if request.image_budget is None else {**config, "image_budget": request.image_budget}


def _abstained(
    scores: Mapping[str, Scored], largest: Mapping[str, float], thresholds: Mapping[str, float] | None
) -> dict[str, bool] | None:
    """Whether to leave each answer aside, for its probability or its labels; None when neither was asked for."""
    if thresholds is None and all(scored.abstain is None for scored in scores.values()):
        return None
    unsure = {name: thresholds is not None and largest[name] < thresholds[name] for name in scores}
    return {name: unsure[name] or bool(scored.abstain) for name, scored in scores.items()}
