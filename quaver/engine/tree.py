"""The state cache: a tree of token runs, shared by every prompt that begins alike.

A node holds what its run of tokens gave (attention keys and values, the head's memory rows) and, for a
backbone with recurrent layers, may hold a snapshot of their state at its end. A prompt is resumed after
the longest stretch of its tokens that the tree knows; with recurrent layers only where a snapshot is.

Keys are exact: the tenant's salt, the token ids, and the digests of media where their first placeholder
stands. A tree belongs to one loaded model, so revision and adapter need no place in it. One thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quaver.models.backbone import Snapshot

#: A token id, or the digest of the medium whose first placeholder stands there.
Symbol = int | bytes
#: What one symbol of a key is reckoned with, in bytes.
SYMBOL_BYTES = 8
#: Nodes are cut at multiples of so many tokens, so that long states can be dropped from their end.
RUN = 512


@dataclass(frozen=True, slots=True)
class Piece:
    """What the tokens ``start`` to ``end`` of a prompt gave.

    ``keys_values`` [layers, 2, heads, end - start, width] and ``memory`` [end - start, memory width].
    """

    start: int
    end: int
    keys_values: Tensor
    memory: Tensor

    def clipped(self, start: int, end: int) -> Piece:
        """The part of it between two positions, sharing its storage."""
        a, b = max(start, self.start) - self.start, min(end, self.end) - self.start
        return Piece(self.start + a, self.start + b, self.keys_values[..., a:b, :], self.memory[a:b])

    @property
    def nbytes(self) -> int:
        return self.keys_values.nbytes + self.memory.nbytes


def join(pieces: Sequence[Piece], start: int, end: int) -> Piece:
    """One piece for ``start`` to ``end`` of consecutive ``pieces`` that cover it, in storage of its own."""
    parts = [piece.clipped(start, end) for piece in pieces if piece.start < end and piece.end > start]
    return Piece(
        start,
        end,
        torch.cat([part.keys_values for part in parts], dim=-2),
        torch.cat([part.memory for part in parts]),
    )


@dataclass(slots=True, eq=False)
class Node:
    """A run of symbols after its parent's.

    ``leases`` counts the prompts under way that stand on it. ``used`` and ``resumed`` are the tree's clock
    when it was last part of a prompt, and when its snapshot last was where one went on; never is 0.
    """

    run: tuple[Symbol, ...]
    piece: Piece | None
    parent: Node | None
    salt: str = ""  # of a root
    snapshot: Snapshot | None = None
    children: dict[Symbol, Node] = field(default_factory=dict)
    leases: int = 0
    used: int = 0
    resumed: int = 0

    @property
    def start(self) -> int:
        return self.piece.start if self.piece else 0

    @property
    def end(self) -> int:
        return self.piece.end if self.piece else 0

    @property
    def nbytes(self) -> int:
        own = self.piece.nbytes + SYMBOL_BYTES * len(self.run) if self.piece else 0
        return own + (self.snapshot.nbytes if self.snapshot else 0)


@dataclass(frozen=True, slots=True)
class Known:
    """The longest usable beginning of a prompt, leased: ``pieces`` cover its first ``length`` tokens."""

    length: int
    pieces: tuple[Piece, ...]
    snapshot: Snapshot | None
    node: Node


class StateTree:
    """At most ``budget`` bytes of states. ``resumable``: whether a prompt can go on without a snapshot."""

    def __init__(self, budget: int, resumable: bool) -> None:
        self.budget = budget
        self.resumable = resumable
        self.used = 0
        self.nodes = 0
        self.evictions = 0
        self._roots: dict[str, Node] = {}
        self._clock = 0

    def length(self, salt: str, symbols: Sequence[Symbol]) -> int:
        """How many of the first symbols need not be computed. Changes nothing."""
        if salt not in self._roots:
            return 0
        return self._resume(*self._walk(self._roots[salt], symbols))[0]

    def lease(self, salt: str, symbols: Sequence[Symbol]) -> Known:
        """What is known of a prompt that begins with ``symbols``; to be given back with ``release``."""
        path, matched = self._walk(self._root(salt), symbols)
        length, node = self._resume(path, matched)
        self._clock += 1
        pieces = []
        for visited in path:
            if visited.piece and visited.start < length:
                visited.used = self._clock
                pieces.append(visited.piece.clipped(0, length))
        node.resumed = self._clock
        node.leases += 1
        return Known(length, tuple(pieces), node.snapshot if node.end == length else None, node)

    def release(self, known: Known) -> None:
        """Ends a lease."""
        known.node.leases -= 1
        self._prune(known.node)

    def insert(
        self, salt: str, symbols: Sequence[Symbol], pieces: Sequence[Piece], snapshots: Mapping[int, Snapshot]
    ) -> None:
        """Keeps what is known of a prompt's first ``len(symbols)`` tokens, as far as the budget allows.

        ``pieces`` are consecutive and reach that far; ``snapshots`` are by position. What the tree has
        already stays as it is. Room is made by dropping what was not used for longest, never what is leased.
        """
        self._clock += 1
        ends = {*range(RUN, len(symbols), RUN), len(symbols), *(p for p in snapshots if p <= len(symbols))}
        node: Node | None = self._root(salt)
        for end in sorted(ends):
            assert node is not None
            last, node = node, self._reach(node, symbols, end, pieces, exact=end in snapshots)
            if node is None:
                self._prune(last)
                return
            node.used = self._clock
            if end in snapshots and node.snapshot is None and self._make_room(node, snapshots[end].nbytes):
                node.snapshot = owned(snapshots[end])
                self.used += node.snapshot.nbytes
        if node is not None:
            self._prune(node)

    def clear(self) -> None:
        """Drops everything that is not leased."""
        while self._evict(None):
            pass

    def check(self) -> None:
        """Raises AssertionError unless every invariant of the tree holds. For tests."""
        used = nodes = 0
        for node in self._all():
            assert node.leases >= 0
            for first, child in node.children.items():
                assert child.parent is node and child.run[0] == first and child.start == node.end
            if node.piece is not None:
                nodes += 1
                used += node.nbytes
                assert len(node.run) == node.end - node.start > 0
                assert node.piece.keys_values.shape[-2] == len(node.piece.memory) == len(node.run)
                for tensor in (node.piece.keys_values, node.piece.memory):
                    assert tensor.untyped_storage().nbytes() == tensor.nbytes
                idle = not node.children and not node.leases
                assert self.resumable or node.snapshot or not idle, "a run that nobody can go on from"
        assert (used, nodes) == (self.used, self.nodes) and self.used <= self.budget

    def _root(self, salt: str) -> Node:
        return self._roots.setdefault(salt, Node((), None, None, salt=salt))

    def _walk(self, root: Node, symbols: Sequence[Symbol]) -> tuple[list[Node], int]:
        """The nodes that begin like ``symbols``, the last one perhaps in part, and how many symbols match."""
        path, matched = [root], 0
        while matched < len(symbols) and (child := path[-1].children.get(symbols[matched])) is not None:
            path.append(child)
            common = _common(child.run, symbols, matched)
            matched += common
            if common < len(child.run):
                break
        return path, matched

    def _resume(self, path: Sequence[Node], matched: int) -> tuple[int, Node]:
        """The longest usable part of a walk, and the node that it ends in."""
        if self.resumable:
            return matched, path[-1]
        node = next(n for n in reversed(path) if n.parent is None or (n.snapshot and n.end <= matched))
        return node.end, node

    def _reach(
        self, node: Node, symbols: Sequence[Symbol], end: int, pieces: Sequence[Piece], exact: bool
    ) -> Node | None:
        """The node below ``node`` that holds symbol ``end - 1``, made when it has to be; one that ends there
        if ``exact``. None when there is no room or ``pieces`` do not go back far enough."""
        while node.end < end:
            child = node.children.get(symbols[node.end])
            if child is None:
                return self._grow(node, symbols, end, pieces)
            same = min(_common(child.run, symbols, node.end), end - node.end)
            if same == len(child.run):
                node = child
            elif node.end + same == end and not exact:
                return child
            else:
                node = self._split(child, same)
        return node

    def _grow(self, node: Node, symbols: Sequence[Symbol], end: int, pieces: Sequence[Piece]) -> Node | None:
        start = node.end
        if not pieces or pieces[0].start > start:
            return None
        size = sum(p.clipped(start, end).nbytes for p in pieces if p.start < end and p.end > start)
        if not self._make_room(node, size + SYMBOL_BYTES * (end - start)):
            return None
        child = Node(tuple(symbols[start:end]), join(pieces, start, end), node, used=self._clock)
        node.children[child.run[0]] = child
        self.nodes += 1
        self.used += child.nbytes
        return child

    def _split(self, node: Node, at: int) -> Node:
        """Cuts a node's run in two; the upper half is new, whoever holds the node holds the lower one."""
        assert node.piece is not None and node.parent is not None
        middle = node.start + at
        upper = Node(node.run[:at], join([node.piece], node.start, middle), node.parent, used=node.used)
        node.run, node.piece = node.run[at:], join([node.piece], middle, node.end)
        node.parent.children[upper.run[0]] = upper
        node.parent, upper.children = upper, {node.run[0]: node}
        self.nodes += 1
        return upper

    def _make_room(self, keep: Node, size: int) -> bool:
        """Drops what was not used for longest until ``size`` bytes fit; ``keep`` and what is above it stay."""
        while self.used + size > self.budget:
            if not self._evict(keep):
                return False
        return True

    def _evict(self, keep: Node | None) -> bool:
        """Drops one leaf, or one snapshot that is not at a leaf; False when there is nothing to drop."""
        oldest: tuple[int, Node] | None = None
        for node in self._all():
            if node.leases or node is keep or (node.children and node.snapshot is None) or node.piece is None:
                continue
            stamp = node.resumed if node.children else node.used
            if oldest is None or stamp < oldest[0]:
                oldest = stamp, node
        if oldest is None:
            return False
        self.evictions += 1
        node = oldest[1]
        if node.children:
            assert node.snapshot is not None
            self.used -= node.snapshot.nbytes
            node.snapshot = None
        else:
            self._remove(node, keep)
        return True

    def _remove(self, node: Node, keep: Node | None = None) -> None:
        parent = node.parent
        if parent is None:
            del self._roots[node.salt]
            return
        del parent.children[node.run[0]]
        self.nodes -= 1
        self.used -= node.nbytes
        self._prune(parent, keep)

    def _prune(self, node: Node, keep: Node | None = None) -> None:
        """Removes a leaf that is of no use: an empty root, or a run that no prompt can go on from."""
        useless = node.piece is None or (not self.resumable and node.snapshot is None)
        if useless and not node.children and not node.leases and node is not keep:
            self._remove(node, keep)

    def _all(self) -> Iterator[Node]:
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()


def owned(snapshot: Snapshot) -> Snapshot:
    """The snapshot in storage of its own: what the model gives are parts of larger tensors."""
    return Snapshot(
        tuple(tensor.clone() for tensor in snapshot.convolutions), tuple(tensor.clone() for tensor in snapshot.matrices)
    )


def _common(run: Sequence[Symbol], symbols: Sequence[Symbol], start: int) -> int:
    """How many symbols of ``run`` stand in ``symbols`` from ``start`` on."""
    if tuple(symbols[start : start + len(run)]) == run:
        return len(run)
    pairs = zip(run, symbols[start : start + len(run)], strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(run), len(symbols) - start))
