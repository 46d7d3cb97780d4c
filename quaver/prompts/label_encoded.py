"""What the prompt of a label read looks like to the engine: token ids, and where labels differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelNode:
    """A place of the reply at which labels differ: after the prompt and ``prefix``.

    ``groups`` has the token ids that count for each way on: surface variants of one label together, or
    the one token that several longer labels share.
    """

    prefix: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of one question, as the reply of one model begins.

    ``paths`` has, per label, the (node, group) pairs it passes. Labels of one token each have one node.
    """

    labels: tuple[str, ...]
    nodes: tuple[LabelNode, ...]
    paths: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of_tokens(cls, labels: Sequence[str], groups: Sequence[Sequence[int]]) -> LabelSet:
        """Labels of one token each, or of one of each of ``groups``: all differ straight after the prompt."""
        node = LabelNode((), tuple(map(tuple, groups)))
        return cls(tuple(labels), (node,), tuple(((0, i),) for i in range(len(labels))))

    def ordered(self, order: Sequence[int]) -> LabelSet:
        """The same labels, the ``order[i]``-th at place ``i``."""
        labels, paths = tuple(self.labels[i] for i in order), tuple(self.paths[i] for i in order)
        return LabelSet(labels, self.nodes, paths)


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """One place to read: after ``ids``, the tokens of each of ``groups`` count together. ``state_end`` as ever."""

    ids: tuple[int, ...]
    state_end: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LabelEncoded:
    """The prompt of one question, to be read at the token after it and after each node's prefix.

    ``option_ids`` names the options in the order they are written, which is the order of the labels.
    ``state_end``, ``media_start`` and ``truncated`` are those of ``Encoded``.
    """

    ids: tuple[int, ...]
    labels: LabelSet
    option_ids: tuple[str, ...]
    media_start: int
    state_end: int
    truncated: int = 0

    def places(self) -> tuple[LabelPlace, ...]:
        """What has to be read for an answer, in the order of the nodes."""
        nodes = self.labels.nodes
        return tuple(LabelPlace((*self.ids, *node.prefix), self.state_end, node.groups) for node in nodes)
