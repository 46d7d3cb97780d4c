"""What a prompt's pooler has to know, as plain data that travels with the request.

A request is ``PoolingParams(task=TASK, skip_reading_prefix_cache=..., extra_kwargs={KEY: record.plain()})``.
Its output is one flat float32 tensor of logits: the options of the first question in the order of its prompt,
then those of the second, and so on (``JointRecord.split``). It is empty when the pooler could not read the
record, so whoever sends one parses it first.

All positions count from the end of the prompt and are zero or less, so they hold wherever media tokens are
expanded. No torch, no vLLM: the front end imports this file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

from quaver.prompts.encoded import Encoded, Span

TASK = "token_classify"
KEY = "quaver"
#: The rows of the head's type embedding.
TYPES = ("noul", "choice", "score")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JointRecord:
    """The typed questions of one prompt.

    ``types`` holds an index into TYPES per question, ``counts`` its number of options. ``questions`` are the
    half-open token spans of their instructions, ``options`` those of all options, question by question.
    Everything before ``state_end`` depends on the state and its media alone; all spans lie behind it.
    """

    types: tuple[int, ...]
    counts: tuple[int, ...]
    questions: tuple[Span, ...]
    options: tuple[Span, ...]
    state_end: int

    @classmethod
    def of(cls, encoded: Encoded) -> JointRecord:
        """The record of a prompt that ``quaver.prompts`` has written."""
        end = len(encoded.ids)
        questions = [question.shifted(-end) for question in encoded.questions]
        return cls(
            types=tuple(TYPES.index(question.type) for question in questions),
            counts=tuple(len(question.option_spans) for question in questions),
            questions=tuple(question.span for question in questions),
            options=tuple(chain.from_iterable(question.option_spans for question in questions)),
            state_end=encoded.state_end - end,
        )

    def plain(self) -> dict[str, Any]:
        """Lists of numbers that msgpack and JSON carry; ``parse`` reads them back."""
        return {
            "types": list(self.types),
            "counts": list(self.counts),
            "questions": [list(span) for span in self.questions],
            "options": [list(span) for span in self.options],
            "state_end": self.state_end,
        }

    @classmethod
    def parse(cls, value: object, length: int) -> JointRecord:
        """The record in ``value``, which belongs to a prompt of ``length`` tokens.

        Raises ValueError with the reason when it is not one, or has a position outside the prompt.
        """
        if not isinstance(value, dict):
            raise ValueError(f"a record is a dict, got {type(value).__name__}")
        keys = cls.__dataclass_fields__.keys()
        if value.keys() != keys:
            raise ValueError(f"a record has the keys {', '.join(keys)}; got {', '.join(map(str, value))}")
        record = cls(
            types=_numbers("types", value["types"]),
            counts=_numbers("counts", value["counts"]),
            questions=_spans("questions", value["questions"]),
            options=_spans("options", value["options"]),
            state_end=_numbers("state_end", [value["state_end"]])[0],
        )
        record._check(length)
        return record

    def split(self, logits: Sequence[T]) -> list[Sequence[T]]:
        """The pooled output, one piece per question. Raises ValueError when it is not of this record's length."""
        if len(logits) != len(self.options):
            raise ValueError(f"the record has {len(self.options)} options and the output {len(logits)} values")
        return [logits[begin:end] for begin, end in pairwise(accumulate(self.counts, initial=0))]

    def _check(self, length: int) -> None:
        if not self.types:
            raise ValueError("a record needs at least one question")
        if not len(self.types) == len(self.counts) == len(self.questions):
            raise ValueError("types, counts and questions have one entry per question each")
        if unknown := [number for number in self.types if not 0 <= number < len(TYPES)]:
            raise ValueError(f"types has {unknown[0]}; known are 0 to {len(TYPES) - 1}")
        if min(self.counts) < 1 or sum(self.counts) != len(self.options):
            raise ValueError("counts gives every question its options, at least one, and all of them together")
        if not -length <= self.state_end < 0:
            raise ValueError(f"state_end is {self.state_end}, which is not within a prompt of {length} tokens")
        for begin, end in (*self.questions, *self.options):
            if not self.state_end <= begin < end <= 0:
                raise ValueError(f"the span [{begin}, {end}) is empty or not between state_end and the prompt's end")


def _numbers(key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(type(number) is int for number in value):
        raise ValueError(f"{key} must hold whole numbers")
    return tuple(value)


def _spans(key: str, value: object) -> tuple[Span, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{key} must be a list of spans")
    spans = [_numbers(key, span) for span in value]
    if any(len(span) != 2 for span in spans):
        raise ValueError(f"{key} must hold pairs of a begin and an end")
    return tuple((begin, end) for begin, end in spans)
