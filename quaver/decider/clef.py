"""The Clef family: one prompt for all questions, or one prompt per question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic

from quaver.decider.family import EncodedView, Limits, Prepared
from quaver.decider.media import MediaOf, check_size
from quaver.engine.job import Prompt
from quaver.media import AS_STORED, UPRIGHT, MediaReader
from quaver.models.backbone import Media
from quaver.models.clef import MAX_LENGTHS, hears
from quaver.models.omni_processor import OmniProcessor
from quaver.models.processor import MediaProcessor
from quaver.models.release import ReleaseInfo
from quaver.prompts.clef import ClefPrompt, alone
from quaver.prompts.encoded import Encoded
from quaver.questions import Json, OverflowRule, ReadingMode, Request

READINGS: tuple[ReadingMode, ...] = ("joint", "independent")


def limits(info: ReleaseInfo) -> Limits:
    """What a Clef release can read unless told otherwise."""
    return Limits(MAX_LENGTHS[info.backbone], images=True, audio=hears(info), videos=True)


class ClefFamily(Generic[Prompt, MediaOf]):
    """Reads requests with a Clef release; see ``Family`` for the contract.

    ``media`` decodes and encodes those of a request, None for one without; ``make`` gives the engine's prompt
    for one that was written, its media and its salt.
    """

    readings = READINGS
    reads_labels = False

    def __init__(
        self,
        info: ReleaseInfo,
        prompt: ClefPrompt,
        media: Callable[[Request], MediaOf | None],
        make: Callable[[Encoded, MediaOf | None, str], Prompt],
    ) -> None:
        self.name = info.name
        self.config: Mapping[str, Json] = {}
        self.limits = replace(limits(info), max_length=prompt.max_length)
        self._prompt = prompt
        self._read_media = media
        self._make = make

    def prepare(self, request: Request, reading: ReadingMode, on_overflow: OverflowRule) -> Prepared[Prompt]:
        media = self._media(request)
        encoded = self._encode(request, media, reading, on_overflow)
        return Prepared(
            tuple(self._make(one, media, request.cache_salt) for one in encoded),
            option_ids=tuple(question.option_ids for one in encoded for question in one.questions),
            input_tokens=sum(len(one.ids) for one in encoded),
            truncated_tokens=max(one.truncated for one in encoded),
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

    def _encode(
        self, request: Request, media: MediaOf | None, reading: ReadingMode, on_overflow: OverflowRule
    ) -> list[Encoded]:
        requests = [request] if reading == "joint" else [single for _, single in alone(request)]
        media_ids = media.ids if media else ()
        return [self._prompt.encode(single, media_ids, on_overflow) for single in requests]

    def _media(self, request: Request) -> MediaOf | None:
        media = self._read_media(request)
        if media is not None:
            check_size(request, media, self._prompt.max_length)
        return media


@dataclass(frozen=True, slots=True)
class MediaEncoder:
    """The media of requests as a release's own processor encodes them; ``reader`` says where they may come from."""

    processor: MediaProcessor | OmniProcessor
    reader: MediaReader

    def __call__(self, request: Request) -> Media | None:
        processor, read = self.processor, self.reader.begun()
        if isinstance(processor, OmniProcessor):
            return processor.encode(
                read.each("images", request.images, lambda source: read.image(source, AS_STORED)),
                read.each("audio", request.audio, read.audio),
                read.each("videos", request.videos, read.film),
            )
        images = read.each("images", request.images, lambda source: read.image(source, UPRIGHT))
        videos = read.each("videos", request.videos, lambda source: read.video(source, processor.frames_of))
        return processor.encode(images, videos)
