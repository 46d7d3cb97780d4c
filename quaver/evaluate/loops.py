"""Repetition loops at the end of generated text, found in linear time.

Three kinds, after the ways in which models get stuck:

- ``period``: the tail repeats exactly, found by the prefix function of the reversed text
  (Knuth, Morris & Pratt 1977), whatever is repeated and wherever the cap cut it;
- ``counter``: the tail repeats exactly once its numbers are masked, and the numbers stand still or
  count up evenly;
- ``drift``: almost no six words in a row are new (seq-rep-n of Welleck et al. 2019, over the tail).

Data repeats too, so the lengths asked for are those that installed source files, tables, logs and
licence texts do not reach (``tests/evaluate/test_loops.py`` measures both sides). A cap alone is no
loop: ``finish_reason`` only decides how much other evidence is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

Kind = Literal["period", "counter", "drift"]

#: Finish reasons with which a generation ended because it would not end by itself.
CAPPED = frozenset({"length", "repetition", "max_tokens"})

WINDOW = 20_000
OPEN_STRING = 300
_COPIES = 3
#: Two thirds of the shortest repetition that counts are longer than this.
_END = 100
_TAIL_WORDS = 400
_GRAM = 6
_BLOCK = 100
#: Share of new six-word runs under which a tail drifts in a circle, and inside a string that stays open.
_NOVELTY = 0.05
_NOVELTY_OPEN = 0.30
_NUMBER = re.compile(r"\d+")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its ``kind``, the index of the character at which it starts, the period in characters (0: none).

    ``suspect`` marks a run that stopped by itself: to be reported, not to be counted as a loop.
    """

    kind: Kind
    start: int
    period: int = 0
    suspect: bool = False


def find_loop(text: str, finish_reason: str | None = None, *, longest_in_gold: int = 0) -> Loop | None:
    """The loop that ``text`` ends in, or None.

    ``finish_reason`` is what the server gave; ``length``, ``repetition`` and ``max_tokens`` count as capped.
    ``longest_in_gold`` is the length in characters of the longest repetition that the right answer itself
    ends in: a shorter or equal one is not a loop. Linear in the length of the text.
    """
    capped = finish_reason in CAPPED
    found = _periodic(text, longest_in_gold)
    if found is None and capped:
        found = _counting(text, longest_in_gold) or _drifting(text)
    if found is None or capped:
        return found
    return Loop(found.kind, found.start, found.period, suspect=True)


def longest_repetition(text: str) -> int:
    """Characters of the longest tail that is at least three copies of something; for ``longest_in_gold``.

    0 when it is too short to be taken for a loop anyway.
    """
    span, _ = _tail_period(text[-WINDOW:], lambda _span, _period: True)
    return span


def _periodic(text: str, longest_in_gold: int) -> Loop | None:
    window = text[-WINDOW:]
    span, period = _tail_period(window, lambda span, period: span >= _needed(period) and span > longest_in_gold)
    if not span:
        return None
    start = len(text) - span
    if span == len(window):
        while start > 0 and text[start - 1] == text[start - 1 + period]:
            start -= 1
    return Loop("period", start, period)


def _needed(period: int) -> int:
    """Characters that a repetition of this period must fill; data repeats short things far, long things rarely."""
    if period <= 2:
        return 160
    if period <= 8:
        return 200
    if period <= 40:
        return max(240, 8 * period)
    if period <= 200:
        return max(400, 5 * period)
    return 4 * period


def _counting(text: str, longest_in_gold: int) -> Loop | None:
    """An exact repetition of the text with its numbers masked, where every number stands still or steps evenly."""
    window = text[-WINDOW:]
    numbers = list(_NUMBER.finditer(window))
    if not numbers:
        return None
    masked = _NUMBER.sub("0", window)
    is_open = _open_string(text) >= OPEN_STRING
    span, period = _tail_period(masked, lambda span, period: _enough_masked(span, period, is_open))
    if not span or span <= longest_in_gold:
        return None
    unit = masked[len(masked) - period :]
    if '"' in unit and not is_open:
        return None  # records with a number or a clock each: that is what honest lists look like
    per_copy = unit.count("0")
    inside = masked[len(masked) - span :].count("0")
    if per_copy == 0 or inside == 0:
        return None
    # The cap may cut the last number short, so it says nothing; the first may have been met in the middle.
    values = [int(number.group()[:18]) for number in numbers[-inside:]][1:-1]
    if not all(_steps_evenly(values[slot::per_copy]) for slot in range(per_copy)):
        return None
    start = numbers[-inside].start() - masked[len(masked) - span :].index("0")
    return Loop("counter", len(text) - len(window) + max(0, start), 0)


def _enough_masked(span: int, period: int, is_open: bool) -> bool:
    if is_open:
        return span >= _needed(period)
    return span >= max(1_000, 2 * _needed(period)) and span >= 12 * period


def _steps_evenly(values: Sequence[int]) -> bool:
    """Whether at least nine tenths of the steps between neighbours are the same step."""
    steps = [after - before for before, after in pairwise(values)]
    if len(steps) < 2:
        return False
    return 10 * max(map(steps.count, set(steps))) >= 9 * len(steps)


def _drifting(text: str) -> Loop | None:
    """A tail of words whose six-word runs have nearly all been there before."""
    window = text[-WINDOW:]
    words = _WORD.findall(window)
    grams = list(zip(*(words[i:] for i in range(_GRAM)), strict=False))
    most = _NOVELTY_OPEN if _open_string(text) >= OPEN_STRING else _NOVELTY
    first, size = len(grams), _TAIL_WORDS
    while first >= size and _new(grams, first - size, first) < most * size:
        first, size = first - size, _BLOCK
    if first == len(grams):
        return None
    start = next(islice(_WORD.finditer(window), first, None)).start()
    return Loop("drift", len(text) - len(window) + start)


def _new(grams: Sequence[tuple[str, ...]], start: int, end: int) -> int:
    """How many of ``grams[start:end]`` are there for the first time."""
    return len(set(grams[:end])) - len(set(grams[:start]))


def _open_string(text: str) -> int:
    """Characters since the opening quote of a JSON string that is still open at the end; 0 when none is."""
    plain = _ESCAPED.sub("__", text)
    return len(plain) - plain.rfind('"') - 1 if plain.count('"') % 2 else 0


def _tail_period(text: str, enough: Callable[[int, int], bool]) -> tuple[int, int]:
    """(span, period) of the longest tail with at least three copies of a period that is ``enough``; else (0, 0)."""
    # A repetition long enough to matter holds its own end once more; most text is settled here.
    if text.find(text[-_END:]) == max(0, len(text) - _END):
        return 0, 0
    reverse = text[::-1]
    border = [0] * len(reverse)
    best = (0, 0)
    length = 0
    for i in range(1, len(reverse)):
        while length and reverse[i] != reverse[length]:
            length = border[length - 1]
        if reverse[i] == reverse[length]:
            length += 1
        border[i] = length
        span, period = i + 1, i + 1 - length
        if span >= _COPIES * period and enough(span, period):
            best = (span, period)
    return best
