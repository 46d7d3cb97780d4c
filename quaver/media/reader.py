"""The media of requests: received from where they may come from, then decoded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from quaver.errors import BadMedia
from quaver.media.decoded import Audio, Film, Image, Video, VideoLength
from quaver.media.limits import DEFAULT_LIMITS, MediaLimits
from quaver.media.policy import MediaPolicy
from quaver.media.rule import UPRIGHT, ImageRule
from quaver.media.samples import from_samples
from quaver.media.source import CARRIED, read_bytes
from quaver.media.tasks import Decode, decode_here

if TYPE_CHECKING:
    from PIL import Image as Pillow

Read = TypeVar("Read")
#: Of a video with so many frames at so many a second, the numbers of those to take, ascending.
Choose = Callable[[int, float], Sequence[int]]


class MediaReader:
    """Reads from where ``policy`` allows and within ``limits``; ``decode`` works here or in a pool.

    Sources are those of ``read_bytes``, and what every method names. All raise BadMedia for what is not what
    it should be, is damaged, or is larger than ``limits`` allow.
    """

    def __init__(
        self, limits: MediaLimits = DEFAULT_LIMITS, policy: MediaPolicy = CARRIED, decode: Decode = decode_here
    ) -> None:
        self._limits = limits
        self._policy = policy
        self._decode = decode

    def begun(self) -> MediaReader:
        """This reader for one request, whose fetches share the time that the policy gives them."""
        return MediaReader(self._limits, self._policy.begun(), self._decode)

    def each(self, kind: str, sources: Sequence[object], read: Callable[[object], Read]) -> list[Read]:
        """Every source of a request's list read; the error leads to the item that cannot be."""
        if len(sources) > self._limits.items:
            raise BadMedia(f"{kind} has {len(sources)} items; at most {self._limits.items} are allowed", (kind,))
        items = []
        for i, source in enumerate(sources):
            try:
                items.append(read(source))
            except BadMedia as error:
                raise BadMedia(f"{kind} item {i}: {error}", (kind, i)) from error
        return items

    def image(self, source: object, rule: ImageRule) -> Image:
        """A picture, or an animation's first frame; ``source`` may be a Pillow image."""
        if _is_pillow(source):
            from quaver.media.image import from_pillow

            return from_pillow(source, self._limits, rule)
        image: Image = self._decoded("image", self._received(source, self._limits.image_bytes), **asdict(rule))
        return image

    def audio(self, source: object) -> Audio:
        """Sound at 16 kHz; ``source`` may be the samples themselves, an array or a list of numbers."""
        if isinstance(source, (np.ndarray, list, tuple)):
            return from_samples(source, self._limits)
        audio: Audio = self._decoded("audio", self._received(source, self._limits.audio_bytes))
        return audio

    def film(self, source: object) -> Film:
        """A video as Clef-omni takes it: two frames a second, and its sound."""
        film: Film = self._decoded("film", self._received(source, self._limits.video_bytes))
        return film

    def video(self, source: object, choose: Choose) -> Video:
        """The frames of a video that ``choose(total, fps)`` names; only those are kept while decoding."""
        data = self._received(source, self._limits.video_bytes)
        length: VideoLength = self._decoded("measure", data)
        indices = [int(index) for index in choose(length.total, length.fps)]
        video: Video = self._decoded("video", data, indices=indices, total=length.total, fps=length.fps)
        return video

    def _received(self, source: object, most: int) -> bytes:
        return read_bytes(source, most, self._policy)

    def _decoded(self, task: str, data: bytes, **arguments: Any) -> Any:
        return self._decode(task, data, self._limits, **arguments)


def _is_pillow(source: object) -> TypeGuard[Pillow.Image]:
    """Whoever has a Pillow image has loaded Pillow; a server of text need not have it."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(source, pillow.Image)


def read_image(source: object, limits: MediaLimits = DEFAULT_LIMITS, rule: ImageRule = UPRIGHT) -> Image:
    """``MediaReader.image``, decoded in this process."""
    return MediaReader(limits).image(source, rule)


def read_audio(source: object, limits: MediaLimits = DEFAULT_LIMITS) -> Audio:
    """``MediaReader.audio``, decoded in this process."""
    return MediaReader(limits).audio(source)


def read_film(source: object, limits: MediaLimits = DEFAULT_LIMITS) -> Film:
    """``MediaReader.film``, decoded in this process."""
    return MediaReader(limits).film(source)


def read_video(source: object, choose: Choose, limits: MediaLimits = DEFAULT_LIMITS) -> Video:
    """``MediaReader.video``, decoded in this process."""
    return MediaReader(limits).video(source, choose)
