"""The state cache against a plain model of it: a dictionary of everything that was ever inserted."""

import random

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quaver.engine.tree import RUN, Known, Piece, StateTree, Symbol
from quaver.models.backbone import Snapshot

LAYERS, HEADS, WIDTH, MEMORY = 2, 1, 2, 3
BYTES_PER_TOKEN = 4 * (LAYERS * 2 * HEADS * WIDTH + MEMORY) + 8


def mark(salt: str, symbols: tuple[Symbol, ...]) -> float:
    """A number that a whole prefix determines, as a token's true results are determined by it."""
    return float(random.Random(repr((salt, symbols))).randrange(1 << 20))


def piece(salt: str, symbols: tuple[Symbol, ...], start: int, end: int) -> Piece:
    marks = torch.tensor([mark(salt, symbols[: i + 1]) for i in range(start, end)])
    keys_values = marks.view(1, 1, 1, -1, 1).expand(LAYERS, 2, HEADS, -1, WIDTH).contiguous()
    return Piece(start, end, keys_values, marks.unsqueeze(1).expand(-1, MEMORY).contiguous())


def snapshot(salt: str, symbols: tuple[Symbol, ...], at: int) -> Snapshot:
    return Snapshot((torch.full((1,), mark(salt, symbols[:at])),), (torch.full((2,), mark(salt, symbols[:at])),))


def verify(known: Known, salt: str, symbols: tuple[Symbol, ...], resumable: bool) -> None:
    """What the tree gives is what computing the prefix would give."""
    assert [p.start for p in known.pieces] == [0, *(p.end for p in known.pieces)][: len(known.pieces)]
    assert (known.pieces[-1].end if known.pieces else 0) == known.length
    for got in known.pieces:
        expected = piece(salt, symbols, got.start, got.end)
        assert torch.equal(got.keys_values, expected.keys_values) and torch.equal(got.memory, expected.memory)
    if known.length and not resumable:
        assert known.snapshot is not None
        assert torch.equal(known.snapshot.matrices[0], snapshot(salt, symbols, known.length).matrices[0])


def insert(tree: StateTree, salt: str, symbols: tuple[Symbol, ...], stops: tuple[int, ...] = ()) -> None:
    known = tree.lease(salt, symbols)
    new = [piece(salt, symbols, known.length, len(symbols))] if known.length < len(symbols) else []
    snapshots = {} if tree.resumable else {at: snapshot(salt, symbols, at) for at in {*stops, len(symbols)}}
    tree.insert(salt, symbols, [*known.pieces, *new], snapshots)
    tree.release(known)


@pytest.mark.parametrize("resumable", [True, False])
def test_the_longest_beginning_is_found(resumable: bool) -> None:
    tree = StateTree(1 << 20, resumable)
    insert(tree, "", (1, 2, 3, 4, 5, 6), stops=(3,))
    assert tree.length("", (1, 2, 3, 4, 5, 6, 7)) == 6
    assert tree.length("", (1, 2, 3, 4, 9)) == (4 if resumable else 3)
    assert tree.length("", (1, 2, 9)) == (2 if resumable else 0)
    assert tree.length("", (9,)) == 0
    assert tree.length("another tenant", (1, 2, 3)) == 0
    tree.check()


@pytest.mark.parametrize("resumable", [True, False])
def test_branches_share_their_beginning(resumable: bool) -> None:
    tree = StateTree(1 << 20, resumable)
    insert(tree, "", tuple(range(100)), stops=(50,))
    alone = tree.used
    insert(tree, "", (*range(80), *range(200, 220)), stops=(50,))
    assert tree.used < 2 * alone - 40 * BYTES_PER_TOKEN
    known = tree.lease("", (*range(80), *range(200, 220)))
    assert known.length == 100
    verify(known, "", (*range(80), *range(200, 220)), resumable)
    tree.release(known)
    tree.check()


def test_equal_ids_with_other_media_share_only_what_is_before_them() -> None:
    tree = StateTree(1 << 20, resumable=True)
    insert(tree, "", (1, 2, b"cat", 7, 7, 3))
    assert tree.length("", (1, 2, b"dog", 7, 7, 3)) == 2
    assert tree.length("", (1, 2, b"cat", 7, 7, 3)) == 6


def test_the_least_recently_used_leaf_goes_first() -> None:
    tree = StateTree(25 * BYTES_PER_TOKEN, resumable=True)
    insert(tree, "", tuple(range(10)))
    insert(tree, "", tuple(range(100, 110)))
    tree.release(tree.lease("", tuple(range(10))))
    insert(tree, "", tuple(range(200, 210)))
    assert tree.length("", tuple(range(10))) == 10
    assert tree.length("", tuple(range(100, 110))) == 0
    assert tree.length("", tuple(range(200, 210))) == 10
    assert tree.evictions == 1
    tree.check()


def test_a_leased_run_is_not_dropped() -> None:
    tree = StateTree(15 * BYTES_PER_TOKEN, resumable=True)
    insert(tree, "", tuple(range(10)))
    known = tree.lease("", tuple(range(10)))
    insert(tree, "", tuple(range(100, 110)))
    assert tree.length("", tuple(range(10))) == 10 and tree.length("", tuple(range(100, 110))) == 0
    tree.release(known)
    insert(tree, "", tuple(range(100, 110)))
    assert tree.length("", tuple(range(100, 110))) == 10
    tree.check()


def test_of_a_state_beyond_the_budget_the_beginning_is_kept() -> None:
    tree = StateTree((RUN + 10) * BYTES_PER_TOKEN, resumable=True)
    insert(tree, "", tuple(range(2 * RUN)))
    assert tree.length("", tuple(range(2 * RUN))) == RUN
    tree.check()


def test_old_snapshots_of_a_growing_state_go_before_its_newest() -> None:
    one = 4 * 3  # bytes of a snapshot
    tree = StateTree(60 * BYTES_PER_TOKEN + 3 * one, resumable=False)
    for end in (10, 20, 30, 40, 50, 60):
        insert(tree, "", tuple(range(end)))
        tree.check()
    assert tree.length("", tuple(range(60))) == 60
    assert tree.length("", tuple(range(30))) < 30


SYMBOLS = st.lists(st.sampled_from([0, 1, b"x"]), min_size=1, max_size=12).map(tuple)
SALTS = st.sampled_from(["", "tenant"])


class Operations(RuleBasedStateMachine):
    """Any order of inserting, leasing, releasing and clearing, within a budget that is always too small."""

    resumable = True

    def __init__(self) -> None:
        super().__init__()
        self.tree = StateTree(30 * BYTES_PER_TOKEN, self.resumable)
        self.leases: list[tuple[str, tuple[Symbol, ...], Known]] = []
        self.inserted: set[tuple[str, tuple[Symbol, ...]]] = set()

    @rule(salt=SALTS, symbols=SYMBOLS, stop=st.integers(1, 12))
    def insert(self, salt: str, symbols: tuple[Symbol, ...], stop: int) -> None:
        insert(self.tree, salt, symbols, (min(stop, len(symbols)),))
        self.inserted.update((salt, symbols[: i + 1]) for i in range(len(symbols)))

    @rule(salt=SALTS, symbols=SYMBOLS)
    def lease(self, salt: str, symbols: tuple[Symbol, ...]) -> None:
        expected = self.tree.length(salt, symbols)
        known = self.tree.lease(salt, symbols)
        assert known.length == expected
        assert known.length == 0 or (salt, symbols[: known.length]) in self.inserted
        verify(known, salt, symbols, self.resumable)
        self.leases.append((salt, symbols, known))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        salt, symbols, known = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        verify(known, salt, symbols, self.resumable)
        self.tree.release(known)

    @rule()
    def clear(self) -> None:
        self.tree.clear()

    @invariant()
    def whole(self) -> None:
        self.tree.check()
        for salt, symbols, known in self.leases:
            if self.resumable:
                assert self.tree.length(salt, symbols) >= known.length, "a leased run was dropped"

    def teardown(self) -> None:
        for _, _, known in self.leases:
            self.tree.release(known)
        self.tree.clear()
        self.tree.check()
        assert self.tree.used == self.tree.nodes == 0


class HybridOperations(Operations):
    resumable = False


LONG = settings(max_examples=40, stateful_step_count=60, deadline=None)
TestOperations = Operations.TestCase
TestOperations.settings = LONG
TestHybridOperations = HybridOperations.TestCase
TestHybridOperations.settings = LONG
