"""The gated delta rule and its causal convolution over packed rows, by plain tensor operations.

Rows of any lengths lie one after another in one batch of tokens. Each is read in chunks: inside a chunk
the rule is a few matrix products and one unit triangular inverse (Yang et al., "Gated Delta Networks",
arXiv 2412.06464, section 3.3), and only the state passes from chunk to chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn.functional import silu
from torch.nn.utils.rnn import pad_sequence

from quaver.models.wide_linear import multiplies_bfloat16

CHUNK = 64
#: Value heads of all rows computed in one step; more of them leave the cache.
LANES = 32
#: Tokens whose channels are convolved at a time, for the same reason.
BLOCK = 32
LOG2_E = 1.0 / math.log(2.0)

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
    States and arithmetic are float32, float64 for a float64 query. Of a bfloat16 query the factors of matrix
    products are bfloat16 where the device multiplies those faster, as in kernels for GPUs.
    """
    precision = _precision(query)
    factors = query.dtype if query.is_cuda or multiplies_bfloat16() else precision
    heads, width = key.shape[1:]
    value_heads, value_width = value.shape[1:]
    spans, starts = layout.chunks(CHUNK), layout.starts
    # Rows with the most chunks first: those still being read at any step are then a prefix.
    order = sorted(range(len(spans)), key=lambda row: (-len(spans[row]), spans[row][0][0] - spans[row][0][1]))
    # Heads that share a key lie side by side, so that one product serves them all.
    state = query.new_zeros(len(spans), heads, width, value_heads // heads, value_width, dtype=precision)
    if initial is not None:
        state.copy_(initial[order].view(len(spans), heads, -1, width, value_width).transpose(2, 3))
    output = query.new_empty(value.shape)
    at_cuts = [state.new_empty(len(cuts), value_heads, width, value_width) for cuts in layout.cuts]
    for rows, step, first in _steps(spans, order, max(1, LANES // value_heads)):
        places = [spans[row][step] for row in rows]
        q, k = (_take(tensor, places, factors) for tensor in (query, key))
        v, g, b = (_take(tensor, places, precision) for tensor in (value, decay, beta))
        states = state[first : first + len(rows)]
        results = _chunk(q, k, v, g, b, states)
        for row, (start, stop), result, after in zip(rows, places, results, states, strict=True):
            output[start:stop] = result.flatten(0, 1)[:, : stop - start].transpose(0, 1)
            position = stop - starts[row]
            if position in layout.cuts[row]:
                target = at_cuts[row][layout.cuts[row].index(position)]
                target.view(heads, -1, width, value_width).copy_(after.transpose(1, 2))
    return output, at_cuts


def _steps(
    spans: Sequence[Sequence[Span]], order: Sequence[int], at_once: int
) -> Iterator[tuple[Sequence[int], int, int]]:
    """What to compute together: rows, the number of their chunk, and the place of the first row in ``order``."""
    for step in range(len(spans[order[0]])):
        active = sum(len(row) > step for row in spans)
        for first in range(0, active, at_once):
            yield order[first : min(first + at_once, active)], step, first


def _chunk(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One chunk of several rows: n rows of w tokens, padded by zeros, which change nothing.

    query, key [n, w, Hk, Dk]; value [n, w, Hv, Dv]; decay, beta [n, w, Hv]; state [n, Hk, Dk, Hv / Hk, Dv], which
    is moved on in place. Returns [n, Hk, Hv / Hk, w, Dv]. Products have factors in the precision of the key.
    """
    precision, factors = state.dtype, key.dtype
    rows, tokens, heads, width = key.shape
    group, value_width = value.shape[2] // heads, value.shape[3]
    every = (rows, heads, group, tokens)
    later, identity = _constants(tokens, precision, key.device)
    # Vectors are scaled to unit length where they are used, within factors per token that are needed anyway.
    query_unit = _unit(query, precision).mul_(width**-0.5).transpose(1, 2).unsqueeze(2)
    key_unit = _unit(key, precision).transpose(1, 2).unsqueeze(2)
    # Products of bfloat16 are several times slower over rows with gaps between them.
    query, key = (x.transpose(1, 2).reshape(-1, tokens, width).contiguous() for x in (query, key))
    value = value.view(rows, tokens, heads, group, value_width).permute(0, 2, 3, 1, 4)
    rate = beta.transpose(1, 2).reshape(*every, 1)

    # In float64, because small steps after a strong one are the difference of large sums; and to the base 2, because
    # powers of e of numbers far below zero are 100 times slower on some CPUs.
    past = decay.transpose(1, 2).cumsum(-1, dtype=torch.float64).mul_(LOG2_E).view(*every, 1)
    last = past[:, :, :, -1:]
    kept = past.exp2().to(precision)
    between = state.new_empty(*every, tokens)
    torch.sub(past, past.mT, out=between)
    # Only decay from earlier to later tokens is ever exponentiated; the reverse would overflow.
    between.add_(later).exp2_().mul_(key_unit.mT)

    # The inverse makes most of errors, so its products of keys are exact.
    wide = key.to(precision)
    grams = [torch.bmm(x, y.mT).view(rows, heads, 1, tokens, tokens) for x, y in ((wide, wide), (query, key))]
    system = (grams[0] * between).mul_(rate * key_unit)
    # A series of powers would do without a solver, but with repeated keys it grows to 1e17 before it cancels.
    inverse = torch.linalg.solve_triangular(system, identity.expand_as(system), upper=False, unitriangular=True)
    attention = between.mul_(grams[1]).mul_(query_unit)

    shared = state.view(-1, width, group * value_width)
    known = shared.to(factors)
    reads = [torch.bmm(x, known).view(rows, heads, tokens, group, value_width).transpose(2, 3) for x in (key, query)]
    error = torch.addcmul(value, reads[0], kept * key_unit, value=-1).mul_(rate)
    change = torch.bmm(inverse.to(factors).flatten(0, 2), error.to(factors).reshape(-1, tokens, value_width))
    output = torch.bmm(attention.to(factors).flatten(0, 2), change).view(*every, value_width)
    output = torch.addcmul(output, reads[1], kept * query_unit)

    change = change.view(*every, value_width).mul_((last - past).exp2_().to(precision) * key_unit)
    state.mul_(last.exp2().to(precision).transpose(2, 3))
    written = change.transpose(2, 3).reshape(-1, tokens, group * value_width)
    if factors == precision:
        shared.baddbmm_(key.mT, written)
    else:
        shared.add_(torch.bmm(key.mT, written))
    return output


@cache
def _constants(tokens: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """[tokens, tokens]: minus infinity where the column is a later token than the row, else 0; the identity."""
    later = torch.full((tokens, tokens), -torch.inf, dtype=dtype, device=device).triu_(1)
    return later, torch.eye(tokens, dtype=dtype, device=device)


@torch.no_grad()
def causal_conv(inputs: Tensor, weight: Tensor, layout: Layout, initial: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """A depthwise causal convolution, then silu, over every row of a packed batch.

    inputs [T, C], which may be overwritten; weight [C, K]; initial [rows, C, K - 1], the inputs before the rows,
    or None for zeros.
    Returns the output [T, C] in the inputs' dtype, and per row the last K - 1 inputs before each of its cuts,
    [cuts, C, K - 1].
    """
    taps = weight.to(_precision(inputs)).t().contiguous()
    context = len(taps) - 1
    states = conv_states(inputs, context, layout, initial)
    for row, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
        head = inputs[start : start + min(length, BLOCK)]
        before = torch.zeros_like(taps[1:]) if initial is None else initial[row].t()
        # From the end, because a block still needs what was before it as it was.
        for first in reversed(range(start + BLOCK, start + length, BLOCK)):
            stop = min(first + BLOCK, start + length)
            inputs[first:stop] = _convolve(inputs[first - context : stop].to(taps.dtype), taps)
        head.copy_(_convolve(torch.cat([before.to(taps.dtype), head.to(taps.dtype)]), taps))
    return inputs, states


def conv_states(inputs: Tensor, context: int, layout: Layout, initial: Tensor | None) -> list[Tensor]:
    """Per row, the ``context`` inputs before each of its cuts, [cuts, C, context]; see ``causal_conv``."""
    states = []
    for row, (start, cuts) in enumerate(zip(layout.starts, layout.cuts, strict=True)):
        states.append(inputs.new_zeros(len(cuts), inputs.shape[1], context))
        for state, cut in zip(states[-1], cuts, strict=True):
            fresh = min(cut, context)
            state[:, context - fresh :] = inputs[start + cut - fresh : start + cut].t()
            if initial is not None and fresh < context:
                state[:, : context - fresh] = initial[row, :, fresh:]
    return states


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


def _unit(vectors: Tensor, precision: torch.dtype) -> Tensor:
    """The factor that scales each vector to unit length, as kernels of the rule define it; finite for zeros."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=precision)
    return length.square_().add_(1e-6).rsqrt_()


def _precision(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
