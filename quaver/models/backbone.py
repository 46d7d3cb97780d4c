"""What the engine needs of a backbone. It knows tokens and pixels, no questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Media:
    """Images and videos of one prompt, encoded.

    ``ids`` stand for them in the prompt. ``tensors`` are the backbone's own inputs: ``pixel_values``
    [patches, values], ``image_grid_thw`` [images, 3] and the same two for videos.
    """

    ids: tuple[int, ...]
    tensors: Mapping[str, Tensor]


class Backbone(Protocol):
    """A causal language model, read for its hidden rows and never for text.

    Not safe to call from two threads at once. Rows depend only on earlier ids and media, which is
    what a later state cache will build on.
    """

    device: torch.device
    dtype: torch.dtype
    hidden_size: int

    @property
    def output_embeddings(self) -> Tensor:
        """The table behind the model's token logits, [vocabulary, hidden]."""
        ...

    def check(self, ids: Sequence[int], media: Media | None) -> None:
        """Raises BadRequest when the media tokens among ``ids`` are not exactly those of ``media``. Runs no model."""
        ...

    def hidden(self, ids: Sequence[int], media: Media | None = None) -> Tensor:
        """Rows after the final norm for one prompt, [len(ids), hidden], in the model's precision."""
        ...
