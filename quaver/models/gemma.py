"""What Gemmas that see have in common: an image is a run of one token, in whose place its soft tokens stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from quaver.models.backbone import Blocks, Inputs, Media, Row
from quaver.models.chat import ChatBackbone
from quaver.models.places import check_places, media_rows


class GemmaBackbone(ChatBackbone, ABC):
    """A loaded Gemma; see ``Backbone`` for the contract.

    ``placeholders`` are the tokens that stand for media, by how they are written; ``image`` is that of images,
    None for a model of text. ``stand_in`` is read wherever an image token is, whose own id some models have
    no embedding for.

    Raises BadRelease as ``ChatBackbone`` does.
    """

    def __init__(self, model: Any, placeholders: Mapping[str, int], image: int | None, stand_in: int) -> None:
        self._placeholders = placeholders
        self._image = image
        self._stand_in = stand_in
        super().__init__(model)

    @property
    @abstractmethod
    def two_ways(self) -> bool:
        """Whether the tokens of one image see each other, in some layers at least."""

    @abstractmethod
    def encode(self, inputs: Inputs) -> Tensor:
        """Soft tokens [1, M, hidden] of the images of a prompt, in the model's precision."""

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        if self._image is None:
            return super().prepare(ids, media)  # which refuses media
        check_places(ids, media.ids if media else (), self._placeholders)
        tokens = torch.tensor(ids)
        positions = torch.arange(len(ids))[None]
        if media is None:
            return Inputs(tokens, positions)
        places = (tokens == self._image).nonzero().squeeze(1)
        return Inputs(tokens, positions, media, places, blocks=_runs(places) if self.two_ways else ())

    def _embedded(self, rows: Sequence[Row], ids: Tensor) -> dict[str, Tensor]:
        embeddings = self._embed(self._readable(ids))
        if media := media_rows(rows, self.encode):
            places, levels = media
            embeddings[places.to(self.device)] = levels[0]
        return {"inputs_embeds": embeddings[None]}

    def _readable(self, ids: Tensor) -> Tensor:
        """``ids`` with the stand-in under every image token."""
        return ids if self._image is None else torch.where(ids == self._image, self._stand_in, ids)


def _runs(places: Tensor) -> Blocks:
    """Begin and end of every run of consecutive numbers in ``places`` [M], ascending."""
    if not len(places):
        return ()
    breaks = (places.diff() != 1).nonzero().squeeze(1) + 1
    return tuple((int(run[0]), int(run[-1]) + 1) for run in places.tensor_split(breaks))
