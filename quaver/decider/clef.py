"""The Clef family: one prompt for all questions, or one prompt per question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from quaver.decider.family import EncodedView, Limits, Prepared
from quaver.engine import Reading
from quaver.engine.joint import JointReader
from quaver.errors import BadMedia
from quaver.media import read_image, read_video
from quaver.models.backbone import Media
from quaver.models.clef import MAX_LENGTH, ClefRelease
from quaver.prompts.clef import ClefPrompt, alone
from quaver.prompts.encoded import Encoded
from quaver.questions import MediaSource, OverflowRule, ReadingMode, Request

Read = TypeVar("Read")


LIMITS = Limits(MAX_LENGTH, images=True, videos=True)
READINGS: tuple[ReadingMode, ...] = ("joint", "independent")


@dataclass(frozen=True, slots=True)
class ClefJob:
    """One prompt with the media that its ids stand for."""

    encoded: Encoded
    media: Media | None


class ClefFamily:
    """Reads requests with a Clef release; see ``Family`` for the contract."""

    readings = READINGS

    def __init__(self, release: ClefRelease, prompt: ClefPrompt, reader: JointReader) -> None:
        self.name = release.info.name
        self.limits = replace(LIMITS, max_length=prompt.max_length)
        self._release = release
        self._prompt = prompt
        self._reader = reader

    def prepare(self, request: Request, reading: ReadingMode, on_overflow: OverflowRule) -> Prepared[ClefJob]:
        media = self._media(request)
        jobs = tuple(ClefJob(encoded, media) for encoded in self._encode(request, media, reading, on_overflow))
        for job in jobs:
            self._release.backbone.check(job.encoded.ids, media)
        return Prepared(
            jobs,
            option_ids=tuple(question.option_ids for job in jobs for question in job.encoded.questions),
            input_tokens=sum(len(job.encoded.ids) for job in jobs),
            truncated_tokens=max(job.encoded.truncated for job in jobs),
        )

    def view(self, request: Request, reading: ReadingMode, on_overflow: OverflowRule) -> EncodedView:
        ids: list[int] = []
        questions = []
        for encoded in self._encode(request, self._media(request), reading, on_overflow):
            questions += [question.shifted(len(ids)) for question in encoded.questions]
            ids += encoded.ids
        return EncodedView(
            ids,
            [question.span for question in questions],
            [list(question.option_spans) for question in questions],
            [list(question.option_ids) for question in questions],
        )

    def read(self, prompt: ClefJob) -> Reading:
        logits = self._reader.read(prompt.encoded, prompt.media)
        return Reading(tuple(logits), computed=len(prompt.encoded.ids))

    def stats(self) -> dict[str, int]:
        return {"state_cache_bytes": 0}

    def _encode(
        self, request: Request, media: Media | None, reading: ReadingMode, on_overflow: OverflowRule
    ) -> list[Encoded]:
        requests = [request] if reading == "joint" else [single for _, single in alone(request)]
        media_ids = media.ids if media else ()
        return [self._prompt.encode(single, media_ids, on_overflow) for single in requests]

    def _media(self, request: Request) -> Media | None:
        if request.audio:
            raise BadMedia(f"{self.name} cannot hear; it reads text, images and videos", ("audio",))
        processor = self._release.processor
        images = _read_each("images", request.images, read_image)
        videos = _read_each("videos", request.videos, lambda source: read_video(source, processor.frames_of))
        return processor.encode(images, videos)


def _read_each(kind: str, sources: Sequence[MediaSource], read: Callable[[MediaSource], Read]) -> list[Read]:
    """Every source decoded; the one that cannot be is named."""
    decoded = []
    for i, source in enumerate(sources):
        try:
            decoded.append(read(source))
        except BadMedia as error:
            raise BadMedia(f"{kind} item {i}: {error}", (kind, i)) from error
    return decoded
