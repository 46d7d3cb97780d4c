"""The gated delta rule and its causal convolution over packed rows, by plain tensor operations.

Rows of any lengths lie one after another in one batch of tokens. Each is read in chunks: inside a chunk
the rule is a few matrix products and one unit triangular inverse (Yang et al., "Gated Delta Networks",
arXiv 2412.06464, section 3.3), and only the state passes from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn.functional import silu
from torch.nn.utils.rnn import pad_sequence

CHUNK = 64
#: Value heads of all rows computed in one step; more of them leave the cache.
LANES = 32
#: Tokens whose channels are convolved at a time, for the same reason.
BLOCK = 64

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of different lengths lie one after another in a packed batch of T tokens.

    ``lengths`` are the tokens of each row, sum T, each at least 1. ``cuts`` are, per row, ascending
    positions in 1..length: the states after that many of the row's tokens are wanted.
    Raises ValueError when they are anything else.
    """

    lengths: tuple[int, ...]
    cuts: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.cuts) != len(self.lengths):
            raise ValueError(f"{len(self.lengths)} rows have cuts for {len(self.cuts)}; give every row its own")
        for row, (length, cuts) in enumerate(zip(self.lengths, self.cuts, strict=True)):
            edges = (0, *cuts, length + 1)
            if length < 1 or any(low >= high for low, high in pairwise(edges)):
                raise ValueError(f"row {row} of {length} tokens has cuts {cuts}; they must ascend within 1..length")

    @property
    def starts(self) -> tuple[int, ...]:
        """The first token of each row in the batch."""
        return tuple(accumulate(self.lengths, initial=0))[:-1]

    def chunks(self, size: int) -> list[list[Span]]:
        """Per row, its tokens as spans (start, stop) of the batch, at most ``size`` long, that end at every cut."""
        rows = []
        for start, length, cuts in zip(self.starts, self.lengths, self.cuts, strict=True):
            edges = sorted({0, *cuts, length})
            spans = [
                (start + first, start + min(first + size, high))
                for low, high in pairwise(edges)
                for first in range(low, high, size)
            ]
            rows.append(spans)
        return rows


@torch.no_grad()
def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, layout: Layout, initial: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """The gated delta rule over every row of a packed batch.

    query, key [T, Hk, Dk] are scaled to unit length here, and the query by Dk**-0.5; value [T, Hv, Dv], where
    consecutive Hv / Hk heads share a key; decay [T, Hv] in log space, at most 0; beta [T, Hv]; initial
    [rows, Hv, Dk, Dv], the states before the rows, or None for zeros.
    Returns the output [T, Hv, Dv] in the query's dtype, and per row the states at its cuts, [cuts, Hv, Dk, Dv].
    States and arithmetic are float32, float64 for a float64 query.
    """
    precision = _precision(query)
    (heads, width), (value_heads, value_width) = key.shape[1:], value.shape[1:]
    group, rows = value_heads // heads, len(layout.lengths)
    spans = layout.chunks(CHUNK)
    # Rows with the most chunks first: those still being read at any step are then a prefix.
    order = sorted(range(rows), key=lambda row: (-len(spans[row]), spans[row][0][0] - spans[row][0][1]))
    # Heads that share a key lie side by side in the last dimension, so that one product serves them all.
    state = query.new_zeros(rows, heads, width, group, value_width, dtype=precision)
    if initial is not None:
        state.copy_(initial[order].view(rows, heads, group, width, value_width).transpose(2, 3))
    output = query.new_empty(value.shape)
    wanted = [query.new_empty(len(cuts), value_heads, width, value_width, dtype=precision) for cuts in layout.cuts]
    at_once = max(1, LANES // value_heads)
    for step in range(len(spans[order[0]])):
        active = [row for row in order if len(spans[row]) > step]
        for first in range(0, len(active), at_once):
            part = active[first : first + at_once]
            places = [spans[row][step] for row in part]
            q, k, v, g, b = (_take(tensor, places, precision) for tensor in (query, key, value, decay, beta))
            result = _chunk(q, k, v, g, b, state[first : first + len(part)])
            for row, (start, stop), rows_out, after in zip(part, places, result, state[first:], strict=False):
                output[start:stop] = rows_out.flatten(0, 1)[:, : stop - start].transpose(0, 1)
                position = stop - layout.starts[row]
                if position in layout.cuts[row]:
                    target = wanted[row][layout.cuts[row].index(position)]
                    target.view(heads, group, width, value_width).copy_(after.transpose(1, 2))
    return output, wanted


def _chunk(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One chunk of several rows: n rows of w tokens, padded by zeros, which change nothing.

    query, key [n, w, Hk, Dk]; value [n, w, Hv, Dv]; decay, beta [n, w, Hv]; state [n, Hk, Dk, Hv / Hk, Dv], which
    is moved on in place. Returns [n, Hk, Hv / Hk, w, Dv].
    """
    rows, tokens, heads, width = key.shape
    group, value_width = value.shape[2] // heads, value.shape[3]
    batch = (rows, heads, group)

    both = key.new_empty(rows, heads, 2, tokens, width)
    torch.mul(key.transpose(1, 2), _unit(key).transpose(1, 2), out=both[:, :, 0])
    torch.mul(query.transpose(1, 2), _unit(query).mul_(width**-0.5).transpose(1, 2), out=both[:, :, 1])
    both = both.view(rows * heads, 2 * tokens, width)
    keys = both[:, :tokens]

    gram = torch.bmm(both, keys.mT).view(rows, heads, 1, 2, tokens, tokens)
    past = decay.transpose(1, 2).cumsum(-1)
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=key.device).triu_(1)
    # Only decay from earlier to later tokens is ever exponentiated; the reverse would overflow.
    between = (past.unsqueeze(-1) - past.unsqueeze(-2)).masked_fill_(later, -torch.inf).exp_().view(*batch, tokens, -1)
    past = past.view(*batch, tokens, 1)
    rate = beta.transpose(1, 2).reshape(*batch, tokens, 1)

    inverse = _unit_lower_inverse((gram[:, :, :, 0] * between).mul_(rate))
    attention = (gram[:, :, :, 1] * between).flatten(0, 2)

    shared = state.view(rows * heads, width, group * value_width)
    read = torch.bmm(both, shared).view(rows, heads, 2, tokens, group, value_width).transpose(3, 4)
    kept = past.exp()
    value = value.view(rows, tokens, heads, group, value_width).permute(0, 2, 3, 1, 4)
    error = torch.addcmul(value, read[:, :, 0], kept, value=-1).mul_(rate)
    change = torch.bmm(inverse.flatten(0, 2), error.reshape(-1, tokens, value_width))
    output = torch.bmm(attention, change).view(*batch, tokens, value_width).addcmul_(read[:, :, 1], kept)

    last = past[:, :, :, -1:]
    change = change.view(*batch, tokens, value_width) * (last - past).exp_()
    state.mul_(last.exp().transpose(2, 3))
    shared.baddbmm_(keys.mT, change.transpose(2, 3).reshape(rows * heads, tokens, group * value_width))
    return output


def _unit_lower_inverse(matrix: Tensor) -> Tensor:
    """The inverse of each lower triangular matrix [..., w, w], whose diagonal is taken to be ones.

    Products of powers of the strict part are no substitute: with repeated keys they grow to 1e17 before
    they cancel.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    inverse: Tensor = torch.linalg.solve_triangular(matrix, identity, upper=False, unitriangular=True)
    return inverse


@torch.no_grad()
def causal_conv(inputs: Tensor, weight: Tensor, layout: Layout, initial: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """A depthwise causal convolution, then silu, over every row of a packed batch.

    inputs [T, C]; weight [C, K]; initial [rows, C, K - 1], the inputs before the rows, or None for zeros.
    Returns the output [T, C] in the inputs' dtype, and per row the last K - 1 inputs before each of its cuts,
    [cuts, C, K - 1].
    """
    taps = weight.to(_precision(inputs)).t().contiguous()
    context = len(taps) - 1
    output = torch.empty_like(inputs)
    states = []
    for row, (start, length, cuts) in enumerate(zip(layout.starts, layout.lengths, layout.cuts, strict=True)):
        before = inputs.new_zeros(context, inputs.shape[1]) if initial is None else initial[row].t().to(inputs)
        head = torch.cat([before, inputs[start : start + min(length, max(BLOCK, context))]])
        states.append(inputs.new_empty(len(cuts), inputs.shape[1], context))
        for state, cut in zip(states[-1], cuts, strict=True):
            end = start + cut
            state.copy_((head[cut : cut + context] if cut < context else inputs[end - context : end]).t())
        for first in range(start, start + length, BLOCK):
            stop = min(first + BLOCK, start + length)
            window = inputs[first - context : stop] if first > start else head[: context + stop - first]
            output[first:stop] = _convolve(window.to(taps.dtype), taps)
    return output, states


def _convolve(window: Tensor, taps: Tensor) -> Tensor:
    """[n, C] of a window [K - 1 + n, C] and taps [K, C]."""
    size = len(window) - len(taps) + 1
    total = window[:size] * taps[0]
    for shift, tap in enumerate(taps[1:], start=1):
        total.addcmul_(window[shift : shift + size], tap)
    return silu(total, inplace=True)


def _take(tokens: Tensor, places: Sequence[Span], precision: torch.dtype) -> Tensor:
    """The tokens at several places, [places, longest, ...], padded by zeros; a view where that will do."""
    if len(places) == 1:
        start, stop = places[0]
        return tokens[start:stop].unsqueeze(0).to(precision)
    return pad_sequence([tokens[start:stop] for start, stop in places], batch_first=True).to(precision)


def _unit(vectors: Tensor) -> Tensor:
    """The factor that scales each vector to unit length, as kernels of the rule define it; finite for zeros."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return length.square_().add_(1e-6).rsqrt_()


def _precision(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
