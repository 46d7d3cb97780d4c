"""Rows of different lengths and different pasts in one forward of a transformers text model.

The rows lie one after another in a batch of one, so that all work per token (projections, feed-forward)
is done without padding. Only attention and recurrent layers know where a row begins: attention through
transformers' own registry of attention functions, the recurrence of gated delta layers and short
convolutions by replacing the forward of the layer, as the ``kernels`` library does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from quaver.models import delta_layer, short_conv
from quaver.models.attention import attend
from quaver.models.backbone import Computed, Pause, Row, Snapshot
from quaver.models.gated_delta import Layout
from quaver.models.prepacked_linear import prepack
from quaver.models.wide_linear import widen

ATTENTION = "quaver_packed"
#: For models that look their masks up by the type of a layer: all take them from the packing.
NO_MASKS = {"full_attention": None, "linear_attention": None, "conv": None}

#: A recurrent layer over packed rows [T, hidden] from the states of its convolution and its matrix, to the output
#: and both at the cuts of each row.
PackedForward = Callable[[Any, Tensor, Layout, Tensor | None, Tensor | None], tuple[Tensor, list[Tensor], list[Tensor]]]
#: By the name under which a decoder layer of transformers has one.
RECURRENT: dict[str, PackedForward] = {
    "linear_attn": delta_layer.packed_forward,
    "conv": short_conv.packed_forward,
}


#: Of the forward under way in this thread; not every layer of every transformers hands on what its model was given.
_PACKING: ContextVar[Packing] = ContextVar("packing")


@dataclass(slots=True)
class Packing:
    """One batch of rows on its way through the layers; collects what has to outlive the forward.

    ``window`` stands in for that of layers which have one. Blocks are seen both ways in those layers, and
    with ``full_blocks`` in the others too. Unless ``causal``, every token sees all of its row, which must
    then be a whole prompt.
    """

    rows: Sequence[Row]
    lengths: tuple[int, ...]
    layout: Layout
    pause: Pause | None
    dtype: torch.dtype
    device: torch.device
    window: int | None = None
    full_blocks: bool = False
    causal: bool = True
    masks: dict[int | None, list[Tensor | None]] = field(default_factory=dict)  # by window, see ``_masks``
    keys_values: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # [heads, T, width], see ``_layer``
    states: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)  # per recurrent layer, see Layout

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        dtype: torch.dtype,
        device: torch.device,
        pause: Pause | None = None,
        window: int | None = None,
        full_blocks: bool = False,
        causal: bool = True,
    ) -> Packing:
        lengths = tuple(row.end - row.start for row in rows)
        cuts = tuple(tuple(cut - row.start for cut in row.cuts) for row in rows)
        return cls(rows, lengths, Layout(lengths, cuts), pause, dtype, device, window, full_blocks, causal)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None = None) -> Tensor:
        """Attention of every row over its own past and itself; [H, T, D] to [T, H, D].

        A token sees itself and the tokens before it, and the later ones of its block where blocks are seen
        both ways. Of the tokens up to itself it sees at most ``window``, which bounds nothing after it.
        """
        if self.pause:
            self.pause()
        window = window and (self.window or window)
        layer = self._layer(key, value)
        lengths = list(self.lengths)
        pieces = zip(*(x.split_with_sizes(lengths, dim=1) for x in (query, key, value)), strict=True)
        mixed = [
            attend(q, k, v, self._past(row, layer) if row.past else None, scaling, mask, self.causal)
            for row, mask, (q, k, v) in zip(self.rows, self._masks(window), pieces, strict=True)
        ]
        return torch.cat(mixed, dim=1).transpose(0, 1)

    def _layer(self, key: Tensor, value: Tensor) -> int:
        """The number of the layer whose keys these are. One that shares another's is handed the same memory."""
        for number, (known, _) in enumerate(self.keys_values):
            if known.data_ptr() == key.data_ptr():
                return number
        self.keys_values.append((key, value))
        return len(self.keys_values) - 1

    def _past(self, row: Row, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [heads, tokens, width] of a row's whole past; see ``_joined``."""
        if row.past[0].dim() > 2:
            keys, values = torch.cat([piece[layer] for piece in row.past], dim=2)
            return keys, values
        key = self.keys_values[layer][0]
        width = key[:, 0].numel()
        first = sum(2 * other[:, 0].numel() for other, _ in self.keys_values[:layer])
        known: Tensor = torch.cat([piece[:, first : first + 2 * width] for piece in row.past])
        keys, values = (x.reshape(len(x), *key[:, 0].shape).transpose(0, 1) for x in torch.split(known, width, dim=1))
        return keys, values

    def _masks(self, window: int | None) -> list[Tensor | None]:
        """Per row, what its new tokens may attend to, [new, past + new]; the same for all layers of a window."""
        if window not in self.masks:
            two_way = window is not None or self.full_blocks
            self.masks[window] = [_mask(row, window, two_way, self.dtype, self.device) for row in self.rows]
        return self.masks[window]

    def recur(self, forward: PackedForward, layer: Any, hidden: Tensor) -> Tensor:
        """A recurrent layer over ``hidden`` [T, hidden], every row going on from its own state."""
        if self.pause:
            self.pause()
        number = len(self.states)
        states = [row.state for row in self.rows]
        convolution = _stacked([state.convolutions[number] if state else None for state in states])
        matrix = _stacked([state.matrices[number] if state else None for state in states])
        output, convolutions, matrices = forward(layer, hidden, self.layout, convolution, matrix)
        self.states.append((convolutions, matrices))
        rows: Tensor = output
        return rows

    def results(self, hidden: Tensor) -> list[Computed]:
        """What each row asked for, copied out of the batch, with its part of ``hidden`` [T, hidden]."""
        results, begin = [], 0
        for i, (row, rows) in enumerate(zip(self.rows, hidden.split_with_sizes(list(self.lengths)), strict=True)):
            kept = max(0, min(row.keep, row.end) - row.start)
            pairs = [(k[:, begin : begin + kept], v[:, begin : begin + kept]) for k, v in self.keys_values]
            snapshots = {
                cut: Snapshot(
                    tuple(convolutions[i][n] for convolutions, _ in self.states),
                    tuple(matrices[i][n] for _, matrices in self.states),
                )
                for n, cut in enumerate(row.cuts)
            }
            results.append(Computed(rows, _joined(pairs) if pairs else hidden.new_empty(0), snapshots))
            begin += row.end - row.start
        return results


def pack(text_model: Any) -> None:
    """Makes a transformers text model, without its output layer, read packed rows: it must then be called
    through ``run``. Its linear layers become those that suit the CPU."""
    text_model.set_attn_implementation(ATTENTION)
    widen(text_model)
    prepack(text_model)
    for layer in text_model.layers:
        for name, forward in RECURRENT.items():
            if (inner := getattr(layer, name, None)) is not None:
                inner.forward = MethodType(partial(_recur, forward), inner)


def laid_out(rows: Sequence[Row], device: torch.device) -> tuple[Tensor, Tensor]:
    """The tokens [T] of all rows, one row after another, and their positions [axes, T]."""
    ids = torch.cat([row.inputs.ids[row.start : row.end] for row in rows])
    positions = torch.cat([row.inputs.positions[:, row.start : row.end] for row in rows], dim=1)
    return ids.to(device), positions.to(device)


def run(text_model: Any, packing: Packing, **inputs: Any) -> list[Computed]:
    """One forward of a packed model over the rows of ``packing``, which ``inputs`` hold in a batch of one."""
    before = _PACKING.set(packing)
    try:
        output = text_model(**inputs, use_cache=False)
    finally:
        _PACKING.reset(before)
    return packing.results(output.last_hidden_state[0])


def _attend(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Any,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if softcap is not None:
        raise NotImplementedError("its attention scores are capped, which the kernels used here cannot do")
    return _PACKING.get().attend(query[0], key[0], value[0], scaling, sliding_window)[None], None


def _recur(forward: PackedForward, layer: Any, hidden_states: Tensor, **_: Any) -> Tensor:
    return _PACKING.get().recur(forward, layer, hidden_states[0])[None]


AttentionInterface.register(ATTENTION, _attend)


def _joined(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Keys and values of all layers in one tensor that can be cut along its tokens, the last dimension but one.

    [layers, 2, heads, T, width]; where layers differ in heads or width, everything of a token side by side.
    """
    if len({key.shape for key, _ in pairs}) == 1:
        return torch.stack([torch.stack(pair) for pair in pairs])
    return torch.cat([x.transpose(0, 1).flatten(1) for pair in pairs for x in pair], dim=1)


def _mask(row: Row, window: int | None, two_way: bool, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """None where plain causal attention is meant, over a past too on a CPU: there are faster ways to it."""
    new, slides = row.end - row.start, window is not None and window < row.end
    blocks = [(a, b) for a, b in row.inputs.blocks if a < row.end and b > row.start]
    if any(a < row.start or b > row.end for a, b in blocks):
        raise ValueError(f"tokens {row.start} to {row.end} divide a block of tokens that see each other: {blocks}")
    if not slides and not (two_way and blocks) and (row.start == 0 or device.type == "cpu"):
        return None
    allowed = torch.ones(new, row.end, dtype=torch.bool, device=device).tril(row.start)
    for a, b in blocks if two_way else ():
        allowed[a - row.start : b - row.start, a:b] = True
    if window is not None:
        allowed = allowed.triu(row.start - window + 1)
    return torch.zeros(new, row.end, dtype=dtype, device=device).masked_fill(~allowed, -torch.inf)


def _stacked(states: Sequence[Tensor | None]) -> Tensor | None:
    """One tensor for all rows, zeros for those that begin; None when all begin."""
    known = next((state for state in states if state is not None), None)
    if known is None:
        return None
    return torch.stack([torch.zeros_like(known) if state is None else state for state in states])
