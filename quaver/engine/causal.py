"""Reading with a causal backbone: prompts in parts, several at a time, from what is known of their state.

A prompt's state comes first and its questions after it, so keys, values, recurrent states and the head's
memory rows of a state are the same for whatever is asked about it.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from quaver.engine.job import Outcome, Reading, Step, not_finite
from quaver.engine.tree import Known, Piece, StateTree, Symbol, owned
from quaver.heads.labels import LabelRead
from quaver.models.backbone import Backbone, Computed, Inputs, Pause, Row, Snapshot

#: A snapshot is taken every so many tokens of a state, besides the one near its end.
SNAPSHOT_EVERY = 512
#: The one near its end is taken so many tokens before it: the last words of a state that grows are often
#: tokenised anew, and closing brackets of JSON move on.
TAIL = 8


class Asked(Hashable, Protocol):
    """What a head needs to know of a prompt's questions; ``state_end`` is where the state ends."""

    @property
    def ids(self) -> tuple[int, ...]: ...

    @property
    def state_end(self) -> int: ...


AskedOf = TypeVar("AskedOf", bound=Asked)


@dataclass(frozen=True)
class StateKey:
    """Equal for prompts that can share the reading of their state."""

    salt: str
    symbols: tuple[Symbol, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Asked for of every prompt that waits whenever a state has been read.
        return hash((self.salt, self.symbols))


@dataclass(frozen=True)
class CausalPrompt(Generic[AskedOf]):
    """``encoded`` with its ``inputs``; prompts that differ in ``salt`` never share anything.

    ``digests`` are those of the media, by their positions in the prompt; the media end at ``media_end``.
    """

    encoded: AskedOf
    inputs: Inputs = field(compare=False, repr=False)
    salt: str = ""
    digests: tuple[tuple[int, bytes], ...] = ()
    media_end: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Asked for at every step, of prompts with thousands of tokens.
        return hash((self.encoded, self.salt, self.digests))

    @property
    def tokens(self) -> int:
        return len(self.encoded.ids)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """What the state is known by: its token ids, and each medium's digest where it begins."""
        symbols: list[Symbol] = list(self.encoded.ids[: self.encoded.state_end])
        for position, digest in self.digests:
            symbols[position] = digest
        return tuple(symbols)


@dataclass(frozen=True, slots=True)
class Record(Generic[AskedOf]):
    """A prompt that was read to its end: ``memory`` [L, memory width] and ``tail``, the hidden rows
    [L - state_end, hidden] after its state."""

    encoded: AskedOf
    memory: Tensor
    tail: Tensor


@dataclass(frozen=True, slots=True)
class HeadRead:
    """What a head makes of a prompt: a vector of logits per question, and its label read where it is one."""

    logits: tuple[Tensor, ...]
    labels: tuple[LabelRead, ...] = ()


class CausalHead(Protocol[AskedOf]):
    """What makes answers of hidden rows."""

    def memory(self, hidden: Tensor) -> Tensor:
        """What has to be kept of hidden rows [n, hidden], [n, memory width]; the width may be 0."""

    def read(self, records: Sequence[Record[AskedOf]]) -> list[HeadRead]:
        """What is answered to the questions of every record."""


@dataclass(slots=True, eq=False)
class CausalProgress(Generic[AskedOf]):
    """A prompt read up to ``position``; the engine's thread alone changes it."""

    prompt: CausalPrompt[AskedOf]
    stops: tuple[int, ...]
    whole_stops: bool
    position: int = 0
    reused: int = 0
    known: Known | None = None
    pieces: list[Piece] = field(default_factory=list)
    snapshot: Snapshot | None = None  # after ``position``
    snapshots: dict[int, Snapshot] = field(default_factory=dict)  # those worth keeping
    memory: list[Tensor] = field(default_factory=list)
    tail: list[Tensor] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        return self.prompt.tokens - self.position

    @property
    def state_stop(self) -> int:
        """Where another prompt of the same state can go on; 0 when it cannot."""
        return self.stops[-1] if self.stops else 0

    def part(self, budget: int) -> int:
        if self.whole_stops:
            return next((stop for stop in self.stops if stop > self.position), self.prompt.tokens) - self.position
        end = self.position + min(self.remaining, max(1, budget))
        if block := self.prompt.inputs.block_at(end):
            # Before the block if there is anything to read before it.
            end = block[0] if block[0] > self.position else block[1]
        return end - self.position

    def resume(self, known_pieces: Sequence[Piece], length: int, snapshot: Snapshot | None) -> None:
        """Goes on after the first ``length`` tokens, whose results are given."""
        self.position = self.reused = length
        self.pieces = list(known_pieces)
        self.memory = [piece.memory for piece in known_pieces]
        self.snapshot = snapshot


class CausalReader(Generic[AskedOf]):
    """``backbone`` and ``head`` with a state cache of ``cache_bytes``; see ``Reader`` for the contract.

    ``deterministic``: a prompt is always computed in the same parts and never in company, so its answer
    is the same to the bit whatever else is asked. States are then reused in steps of ``SNAPSHOT_EVERY``.
    """

    def __init__(
        self, backbone: Backbone, head: CausalHead[AskedOf], cache_bytes: int, deterministic: bool = False
    ) -> None:
        self.backbone = backbone
        self.head = head
        self.tree = StateTree(cache_bytes, backbone.resumable)
        self._deterministic = deterministic

    def state_of(self, prompt: CausalPrompt[AskedOf]) -> Hashable | None:
        return StateKey(prompt.salt, prompt.symbols)

    def missing(self, prompt: CausalPrompt[AskedOf]) -> int:
        return prompt.tokens - self.tree.length(prompt.salt, prompt.symbols)

    def open(self, prompt: CausalPrompt[AskedOf]) -> CausalProgress[AskedOf]:
        progress = CausalProgress(prompt, self._stops(prompt), self._deterministic)
        progress.known = known = self.tree.lease(prompt.salt, prompt.symbols)
        length = self._usable(progress, known.length)
        progress.resume([p.clipped(0, length) for p in known.pieces if p.start < length], length, known.snapshot)
        return progress

    @torch.inference_mode()
    def step(self, parts: Sequence[tuple[CausalProgress[AskedOf], int]], pause: Pause | None = None) -> Step:
        started = time.perf_counter()
        computed = self.backbone.forward([self._row(progress, tokens) for progress, tokens in parts], pause)
        # Checked before anything is kept; on a GPU this is also what waits for the forward.
        sound = [bool(result.hidden.isfinite().all()) for result in computed]
        memories = [self.head.memory(result.hidden) for result in computed]
        between = time.perf_counter()
        records = {
            i: self._record(progress, result.hidden, memory)
            for i, ((progress, tokens), result, memory) in enumerate(zip(parts, computed, memories, strict=True))
            if sound[i] and tokens == progress.remaining
        }
        reads = dict(zip(records, self._reads(list(records.values())), strict=True))
        outcomes: list[Outcome] = []
        for i, ((progress, tokens), result, memory) in enumerate(zip(parts, computed, memories, strict=True)):
            read = reads.get(i)
            if not sound[i] or not (read is None or all(bool(row.isfinite().all()) for row in read.logits)):
                outcomes.append(not_finite())
                continue
            self._accept(progress, tokens, result, memory)
            computed_of_it, reused = progress.prompt.tokens - progress.reused, progress.reused
            outcomes.append(Reading(read.logits, computed_of_it, reused, read.labels) if read else None)
        ended = time.perf_counter()
        return Step(outcomes, sum(tokens for _, tokens in parts), between - started, ended - between)

    def shareable(self, leader: CausalProgress[AskedOf]) -> bool:
        return leader.position >= leader.state_stop

    def share(self, leader: CausalProgress[AskedOf], follower: CausalProgress[AskedOf]) -> None:
        length = min(leader.position, leader.state_stop)
        snapshot = leader.snapshot if length == leader.position else leader.snapshots.get(length)
        if length <= follower.position or (snapshot is None and not self.backbone.resumable):
            return
        follower.resume([p.clipped(0, length) for p in leader.pieces if p.start < length], length, snapshot)
        follower.snapshots = {at: state for at, state in leader.snapshots.items() if at <= length}

    def keep(self, progress: CausalProgress[AskedOf]) -> None:
        symbols = progress.prompt.symbols
        length = progress.state_stop if self.backbone.resumable else max(progress.snapshots, default=0)
        if self.tree.budget and length:
            self.tree.insert(progress.prompt.salt, symbols[:length], progress.pieces, progress.snapshots)

    def close(self, progress: CausalProgress[AskedOf]) -> None:
        assert progress.known is not None
        self.tree.release(progress.known)

    def shrink(self) -> None:
        self.tree.clear()
        if self.backbone.device.type == "cuda":
            torch.cuda.empty_cache()

    def stats(self) -> dict[str, int]:
        return {
            "state_cache_bytes": self.tree.used,
            "state_cache_budget": self.tree.budget,
            "state_cache_nodes": self.tree.nodes,
            "cache_evictions": self.tree.evictions,
        }

    def _stops(self, prompt: CausalPrompt[AskedOf]) -> tuple[int, ...]:
        """Where the state can be gone on from; the last one is what prompts of the same state share."""
        end = prompt.encoded.state_end

        def whole(stop: int) -> int:
            """After the block that it lies in."""
            block = prompt.inputs.block_at(stop)
            return block[1] if block else stop

        if self._deterministic:
            # Nothing but a token's own past may decide in which part it is computed.
            return tuple(sorted({whole(stop) for stop in range(SNAPSHOT_EVERY, end + 1, SNAPSHOT_EVERY)}))
        last = end if self.backbone.resumable else max(1, end - TAIL)
        stops = {*range(SNAPSHOT_EVERY, last, SNAPSHOT_EVERY), last}
        # The same media before another text.
        stops |= {prompt.media_end} if 0 < prompt.media_end < last else set()
        return tuple(sorted({whole(stop) for stop in stops}))

    def _usable(self, progress: CausalProgress[AskedOf], length: int) -> int:
        """How much of the ``length`` tokens that are known a prompt can go on from."""
        if self._deterministic:
            return max((stop for stop in progress.stops if stop <= length), default=0)
        block = progress.prompt.inputs.block_at(length)
        return block[0] if block else length

    def _row(self, progress: CausalProgress[AskedOf], tokens: int) -> Row:
        start, end = progress.position, progress.position + tokens
        unfinished = tokens < progress.remaining
        cuts: set[int] = set()
        if not self.backbone.resumable:
            cuts = {stop for stop in progress.stops if start < stop <= end} | ({end} if unfinished else set())
        return Row(
            progress.prompt.inputs,
            start,
            end,
            past=tuple(piece.keys_values for piece in progress.pieces),
            state=progress.snapshot,
            cuts=tuple(sorted(cuts)),
            # Later parts need all of them, and other prompts those of the state.
            keep=end if unfinished else min(end, progress.prompt.encoded.state_end),
        )

    def _record(self, progress: CausalProgress[AskedOf], hidden: Tensor, memory: Tensor) -> Record[AskedOf]:
        tail = torch.cat([*progress.tail, _tail(progress, hidden)])
        return Record(progress.prompt.encoded, torch.cat([*progress.memory, memory]), tail)

    def _reads(self, records: Sequence[Record[AskedOf]]) -> list[HeadRead]:
        if self._deterministic:
            return [read for record in records for read in self.head.read([record])]
        return self.head.read(records) if records else []

    def _accept(self, progress: CausalProgress[AskedOf], tokens: int, result: Computed, memory: Tensor) -> None:
        start, kept = progress.position, result.kept.shape[-2]
        progress.tail.append(_tail(progress, result.hidden))
        progress.memory.append(memory)
        progress.pieces.append(Piece(start, start + kept, result.kept, memory[:kept]))
        progress.position += tokens
        progress.snapshot = result.snapshots.get(progress.position)
        progress.snapshots |= {at: owned(state) for at, state in result.snapshots.items() if at in progress.stops}


def _tail(progress: CausalProgress[AskedOf], hidden: Tensor) -> Tensor:
    """Those of the new hidden rows that lie after the state."""
    return hidden[max(0, progress.prompt.encoded.state_end - progress.position) :]
