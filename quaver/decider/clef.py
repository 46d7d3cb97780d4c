"""The Clef family: one prompt for all questions, or one prompt per question."""

from __future__ import annotations

from dataclasses import replace

from quaver.decider.family import EncodedView, Limits, Prepared
from quaver.engine.causal import CausalPrompt, CausalReader
from quaver.errors import BadMedia
from quaver.media import AS_STORED, UPRIGHT, MediaReader
from quaver.models.backbone import Media
from quaver.models.clef import MAX_LENGTHS, ClefRelease, hears
from quaver.models.omni_processor import OmniProcessor
from quaver.models.release import ReleaseInfo
from quaver.prompts.clef import ClefPrompt, alone
from quaver.prompts.encoded import Encoded
from quaver.questions import OverflowRule, ReadingMode, Request

READINGS: tuple[ReadingMode, ...] = ("joint", "independent")


def limits(info: ReleaseInfo) -> Limits:
    """What a Clef release can read unless told otherwise."""
    return Limits(MAX_LENGTHS[info.backbone], images=True, audio=hears(info), videos=True)


class ClefFamily:
    """Reads requests with a Clef release; see ``Family`` for the contract."""

    readings = READINGS
    reads_labels = False

    def __init__(
        self, release: ClefRelease, prompt: ClefPrompt, reader: CausalReader[Encoded], media: MediaReader
    ) -> None:
        self.name = release.info.name
        self.limits = replace(limits(release.info), max_length=prompt.max_length)
        self._release = release
        self._prompt = prompt
        self._media_reader = media
        self.reader = reader

    def prepare(
        self, request: Request, reading: ReadingMode, on_overflow: OverflowRule
    ) -> Prepared[CausalPrompt[Encoded]]:
        media = self._media(request)
        prompts = tuple(
            self._causal(encoded, media, request.cache_salt)
            for encoded in self._encode(request, media, reading, on_overflow)
        )
        return Prepared(
            prompts,
            option_ids=tuple(question.option_ids for prompt in prompts for question in prompt.encoded.questions),
            input_tokens=sum(prompt.tokens for prompt in prompts),
            truncated_tokens=max(prompt.encoded.truncated for prompt in prompts),
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

    def _causal(self, encoded: Encoded, media: Media | None, salt: str) -> CausalPrompt[Encoded]:
        inputs = self._release.backbone.prepare(encoded.ids, media)
        if media is None:
            return CausalPrompt(encoded, inputs, salt)
        start = encoded.media_start
        digests = tuple((start + position, digest) for position, digest in media.digests)
        return CausalPrompt(encoded, inputs, salt, digests, media_end=start + len(media.ids))

    def _encode(
        self, request: Request, media: Media | None, reading: ReadingMode, on_overflow: OverflowRule
    ) -> list[Encoded]:
        requests = [request] if reading == "joint" else [single for _, single in alone(request)]
        media_ids = media.ids if media else ()
        return [self._prompt.encode(single, media_ids, on_overflow) for single in requests]

    def _media(self, request: Request) -> Media | None:
        media = self._encode_media(request)
        if media is not None and len(media.ids) > self._prompt.max_length:
            self._refuse_size(request, media)
        return media

    def _refuse_size(self, request: Request, media: Media) -> None:
        """BadMedia for the item with which the media of a request grow larger than a whole prompt may be."""
        limit = self._prompt.max_length
        kinds = [(kind, i) for kind in ("images", "audio", "videos") for i in range(len(getattr(request, kind)))]
        ends = [*(start for start, _ in media.digests[1:]), len(media.ids)]
        kind, i = next(item for item, end in zip(kinds, ends, strict=True) if end > limit)
        raise BadMedia(
            f"{kind} item {i}: with it the media have over {limit} tokens, which is what a whole prompt may have here; "
            "send it smaller or shorter, or send fewer",
            (kind, i),
        )

    def _encode_media(self, request: Request) -> Media | None:
        processor, read = self._release.processor, self._media_reader.begun()
        if isinstance(processor, OmniProcessor):
            return processor.encode(
                read.each("images", request.images, lambda source: read.image(source, AS_STORED)),
                read.each("audio", request.audio, read.audio),
                read.each("videos", request.videos, read.film),
            )
        images = read.each("images", request.images, lambda source: read.image(source, UPRIGHT))
        videos = read.each("videos", request.videos, lambda source: read.video(source, processor.frames_of))
        return processor.encode(images, videos)
