"""Decoded images, clips and films to prompt ids, patches and log-mel features, as clef-omni reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import transformers
from packaging.version import Version

from quaver.errors import BadMedia
from quaver.models.backbone import Media
from quaver.models.release_processor import Picture, ReleaseProcessor, blame, channels_first

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>\n"
CLIP = "<|audio_start|><|audio_pad|><|audio_end|>\n"
FILM = "<|vision_start|><|video_pad|><|vision_end|>\n"
#: What the reference asks of the processor; the release's own values are wider.
IMAGES = {"size": {"shortest_edge": 65_536, "longest_edge": 1_048_576}}
FILMS = {"fps": 2.0, "do_sample_frames": False}
#: Earlier processors of transformers ignore which film a sound belongs to.
HEARS_FILMS = Version("5.24")


class Sound(Protocol):
    """``quaver.media.Audio`` is one."""

    @property
    def samples(self) -> Any:
        """Mono float32 at 16 kHz, [samples]."""

    @property
    def digest(self) -> str:
        """Of the samples, hexadecimal."""


class Movie(Protocol):
    """``quaver.media.Film`` is one."""

    @property
    def frames(self) -> Any:
        """RGB bytes at two frames a second, [even, height, width, 3]."""

    @property
    def soundtrack(self) -> Any:
        """Mono float32 at 16 kHz, [samples], or None."""

    @property
    def digest(self) -> str:
        """Of frames and soundtrack, hexadecimal."""


class OmniProcessor(ReleaseProcessor):
    """The media half of a clef-omni prompt. Source: the release's ``joint_schema_model.py``."""

    def encode(self, images: Sequence[Picture], clips: Sequence[Sound], films: Sequence[Movie]) -> Media | None:
        """Images, then clips, then films, a newline after each; None without any.

        Films are heard only when every one of them has a soundtrack; it then lies between the film's
        frames, by time. Raises BadMedia, leading to the item, when the model or the installed transformers
        cannot take it.
        """
        if not (images or clips or films):
            return None
        try:
            return self._encode(images, clips, films)
        except ValueError as error:
            blame("images", images, lambda item: self._encode([item], [], []))
            blame("audio", clips, lambda item: self._encode([], [item], []))
            blame("videos", films, lambda item: self._encode([], [], [item]))
            raise BadMedia(f"the media cannot be read together: {error}") from error

    def _encode(self, images: Sequence[Picture], clips: Sequence[Sound], films: Sequence[Movie]) -> Media:
        tracks = [film.soundtrack for film in films]
        heard = bool(tracks) and all(track is not None for track in tracks)
        sounds = [clip.samples for clip in clips] + (tracks if heard else [])
        self._check_length(sounds)
        if heard and Version(transformers.__version__) < HEARS_FILMS:
            raise ValueError(
                f"films with their sound need transformers {HEARS_FILMS} or newer, and this server has "
                f"{transformers.__version__}; send the film without its sound, or install a newer one"
            )
        # Sounds are padded to the longest before their features are made, which reaches into the last of them.
        longest = max(map(len, sounds), default=0)
        lasting = [clip.digest for clip in clips] + [film.digest for film in films]
        return self._read(
            IMAGE * len(images) + CLIP * len(clips) + FILM * len(films),
            [image.digest for image in images] + [f"{digest}/{longest}" for digest in lasting],
            images=[channels_first(image.pixels) for image in images] or None,
            audio=sounds or None,
            videos=[channels_first(film.frames) for film in films] or None,
            images_kwargs=IMAGES,
            videos_kwargs=FILMS,
            load_audio_from_video=heard,
            # Tracks come decoded, after the clips: which film each sound belongs to, None for a clip.
            audio_from_video_indices=[None] * len(clips) + list(range(len(tracks))) if heard else None,
        )

    def _check_length(self, sounds: Sequence[Any]) -> None:
        if not sounds:
            return
        least, longest = self._processor.feature_extractor.n_fft // 2, max(map(len, sounds))
        if longest <= least:
            raise ValueError(f"it has {longest} samples of sound and must have more than {least}")
