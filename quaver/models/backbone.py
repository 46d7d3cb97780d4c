"""What the engine needs of a backbone: tokens and pixels to hidden rows. It knows no questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Media:
    """Images, clips and videos of one prompt, encoded.

    ``ids`` stand for them in the prompt. ``tensors`` are the backbone's own inputs: ``pixel_values``
    [patches, values], ``image_grid_thw`` [images, 3] and so on. ``digests`` has the position in ``ids``
    of each item's first placeholder and a digest of its full content: two prompts with equal ids mean
    the same only when these are equal too.
    """

    ids: tuple[int, ...]
    tensors: Mapping[str, Tensor]
    digests: tuple[tuple[int, bytes], ...] = ()


#: Begin and end of each, ascending.
Blocks = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Inputs:
    """One whole prompt as a backbone reads it, made once and read in any number of parts.

    ``positions`` [axes, L] are those of the rotary embedding. ``rows`` are what media put at the ``places``
    of the prompt, made by the first part that holds any: level 0 in place of the embeddings, the others
    added after the first layers, by backbones that do so. ``blocks`` are runs of tokens, begin and end, that
    see each other both ways; a part of the prompt has all of a block or nothing.
    """

    ids: Tensor  # [L] long
    positions: Tensor
    media: Media | None = None
    places: Tensor | None = None  # [M] long, ascending: where the prompt's media rows go
    rows: Tensor | None = field(default=None, repr=False)  # [levels, M, hidden] once encoded
    blocks: Blocks = ()

    def __len__(self) -> int:
        return len(self.ids)

    def block_at(self, position: int) -> tuple[int, int] | None:
        """The block that a cut before the token at ``position`` would divide."""
        return next((block for block in self.blocks if block[0] < position < block[1]), None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The recurrent layers' state after some token: all that later tokens need of those layers.

    Per recurrent layer the last inputs of its convolution [channels, kernel - 1] and its matrix
    [heads, key, value] in float32. Empty for a backbone without such layers.
    """

    convolutions: tuple[Tensor, ...]
    matrices: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.convolutions, *self.matrices))


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens ``start`` to ``end`` of one prompt, to be computed after those whose past is given.

    ``past`` holds keys and values of the first ``start`` tokens, one piece of ``Computed.kept`` after another.
    ``state`` is the recurrent layers' state after them. A state is wanted after every position of ``cuts``,
    and keys and values of the tokens before ``keep``.
    """

    inputs: Inputs
    start: int
    end: int
    past: tuple[Tensor, ...] = ()
    state: Snapshot | None = None
    cuts: tuple[int, ...] = ()
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """What a row gave: ``hidden`` [end - start, hidden] after the final norm, in the model's precision;
    ``kept`` [layers, 2, heads, keep - start, width], or [keep - start, values] where layers have heads of
    different shapes; and the ``snapshots`` asked for, by position."""

    hidden: Tensor
    kept: Tensor
    snapshots: Mapping[int, Snapshot]


#: Called in the middle of a forward; may run another one.
Pause = Callable[[], None]


class Backbone(Protocol):
    """A causal language model, read for its hidden rows and never for text.

    ``prepare`` may be called from any thread, ``forward`` from one at a time. A token's row depends on
    earlier tokens and media only, and on the rest of its block. ``resumable`` says whether a prompt can be
    continued after any of its tokens; a hybrid model can be only where a snapshot was taken.
    """

    device: torch.device
    dtype: torch.dtype
    hidden_size: int
    resumable: bool

    @property
    def output_embeddings(self) -> Tensor:
        """The table behind the model's token logits, [vocabulary, hidden]."""
        ...

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        """A prompt ready to be read. Raises BadRequest when the media tokens among ``ids`` are not exactly
        those of ``media``. Runs no model."""
        ...

    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        """Reads the rows together; what a row gives does not depend on its neighbours. Calls ``pause`` before
        every layer: whoever waits for something short need not wait for all of them."""
        ...
