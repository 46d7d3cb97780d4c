"""The split read: state and schema are encoded apart, kept by content, and joined by the head.

Works on token windows; knows no wording and no JSON. Both sides depend on their own tokens alone,
so a known state costs only its questions and a known schema costs only the state. One thread at a
time may read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from quaver.engine.job import Reading
from quaver.heads.joint_schema import HeadInput, JointSchemaHead
from quaver.models.encoder import Encoder
from quaver.prompts.split import SplitEncoded, Text


@dataclass(frozen=True, slots=True)
class TextRows:
    """What is kept of a question or an option: mean rows over all its tokens."""

    pooled: Tensor  # [hidden], raw
    normal: Tensor  # [hidden], normalised by the head

    @property
    def size(self) -> int:
        return self.pooled.nbytes + self.normal.nbytes


@dataclass(frozen=True, slots=True)
class StateRows:
    """What is kept of a state: its mean rows and the head's memory of every token."""

    text: TextRows
    memory: Tensor  # [tokens, width]

    @property
    def size(self) -> int:
        return self.text.size + self.memory.nbytes


class Sized(Protocol):
    """Has a size in bytes."""

    @property
    def size(self) -> int: ...


Kept = TypeVar("Kept", bound=Sized)


class Cache(Generic[Kept]):
    """Least recently used entries by tenant and content, within ``budget`` bytes; a larger entry is not kept.

    The key counts too: 8 bytes per token id.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self.evictions = 0
        self._entries: OrderedDict[tuple[str, Text], Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, salt: str, text: Text) -> Kept | None:
        """The entry, which becomes the most recently used one."""
        if (salt, text) in self._entries:
            self._entries.move_to_end((salt, text))
        return self._entries.get((salt, text))

    def put(self, salt: str, text: Text, entry: Kept) -> None:
        """Keeps ``entry`` and drops the oldest ones until all fit."""
        cost = _cost(text, entry)
        if (salt, text) in self._entries or cost > self.budget:
            return
        self._entries[salt, text] = entry
        self.used += cost
        while self.used > self.budget:
            (_, oldest), dropped = self._entries.popitem(last=False)
            self.used -= _cost(oldest, dropped)
            self.evictions += 1

    def clear(self) -> None:
        """Drops everything."""
        self._entries.clear()
        self.used = 0


def _cost(text: Text, entry: Sized) -> int:
    return entry.size + 8 * tokens(text)


def tokens(text: Text) -> int:
    """Tokens of all windows."""
    return sum(map(len, text))


def divisors(temperatures: Tensor, options: Tensor) -> Tensor:
    """``t * (n / 2) ** g`` for rows (t, g) of [Q, 2] and n options each, [Q].

    A cosine tells two options apart more surely than twenty, so one temperature does not fit both.
    """
    return temperatures[:, 0] * (options / 2) ** temperatures[:, 1]


class SplitReader:
    """Reads questions about states with one encoder and one head, three quarters of the cache for states.

    ``temperatures`` divide the logits of noul, choice and score questions, see ``divisors``; None takes
    the release's own.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: JointSchemaHead,
        cache_bytes: int = 256 << 20,
        temperatures: Sequence[tuple[float, float]] | None = None,
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.temperatures = torch.tensor(encoder.temperatures if temperatures is None else temperatures)
        self.states: Cache[StateRows] = Cache(cache_bytes * 3 // 4)
        self.schemas: Cache[TextRows] = Cache(cache_bytes // 4)

    @torch.inference_mode()
    def read(self, encoded: SplitEncoded) -> Reading:
        """Logits of every question, options in request order."""
        schema = [text for question in encoded.questions for text in (question.text, *question.options)]
        state, known, computed = self._rows(encoded.salt, encoded.state, schema)
        logits = self.head([self._input(encoded, state, known)], alone=True)[0].cpu()
        # The engine refuses an answer that is not finite; nothing of it may wait here for the next request.
        if bool(logits.isfinite().all()):
            self.states.put(encoded.salt, encoded.state, state)
            for text, rows in known.items():
                self.schemas.put(encoded.salt, text, rows)
        sizes = [len(question.options) for question in encoded.questions]
        types = torch.tensor([question.type for question in encoded.questions])
        by = divisors(self.temperatures[types], torch.tensor(sizes))
        each = tuple(row / d for row, d in zip(logits.split(sizes), by, strict=True))
        return Reading(each, computed, reused=encoded.tokens - computed)

    def stats(self) -> dict[str, int]:
        """Sizes of what is kept, in bytes and entries."""
        states, schemas = self.states, self.schemas
        return {
            "state_cache_bytes": states.used + schemas.used,
            "state_cache_budget": states.budget + schemas.budget,
            "state_cache_nodes": len(states) + len(schemas),
            "cache_evictions": states.evictions + schemas.evictions,
        }

    def shrink(self) -> None:
        """Drops what is kept."""
        self.states.clear()
        self.schemas.clear()

    def _rows(self, salt: str, state: Text, schema: Sequence[Text]) -> tuple[StateRows, dict[Text, TextRows], int]:
        """The rows of the state and of all schema texts; what no cache holds is encoded in one go, and its tokens
        are counted."""
        kept = self.states.get(salt, state)
        known: dict[Text, TextRows] = {}
        wanted: list[Text] = []
        for text in dict.fromkeys(schema):
            found = self.schemas.get(salt, text)
            if found is None:
                wanted.append(text)
            else:
                known[text] = found
        new = wanted if kept else [state, *wanted]
        hidden = iter(self.encoder([window for text in new for window in text]))
        rows = [torch.cat([next(hidden) for _ in text]) for text in new]
        if kept is None:
            normal = self.head.normalise(rows[0])
            kept = StateRows(TextRows(rows[0].mean(0), normal.mean(0)), self.head.project_memory(normal))
            rows = rows[1:]
        for text, row in zip(wanted, rows, strict=True):
            known[text] = TextRows(row.mean(0), self.head.normalise(row).mean(0))
        return kept, known, sum(map(tokens, new))

    def _input(self, encoded: SplitEncoded, state: StateRows, known: dict[Text, TextRows]) -> HeadInput:
        """The head's rows: here the anchor of every prior is the state itself."""
        questions = encoded.questions
        options = [known[text] for question in questions for text in question.options]
        sizes = torch.tensor([len(question.options) for question in questions])
        return HeadInput(
            memory=state.memory,
            question=torch.stack([known[question.text].normal for question in questions]),
            context=torch.stack([option.normal for option in options]),
            lexical=torch.stack([option.pooled for option in options]),
            summary=state.text.normal,
            anchor=state.text.pooled.expand(len(questions), -1),
            types=torch.tensor([question.type for question in questions], device=state.memory.device),
            owner=torch.repeat_interleave(torch.arange(len(questions)), sizes).to(state.memory.device),
        )
