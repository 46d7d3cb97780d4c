"""Claims that were made from counts, judged again: which of them the counts carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from quaver.errors import BadRequest
from quaver.evaluate.compare.fields import known
from quaver.evaluate.compare.power import ALPHA, luck_of_the_best
from quaver.evaluate.files import read_data
from quaver.evaluate.statistics import Interval, beta_greater, fisher, newcombe, smallest_sign_flip_p, wilson

#: differs: the rates differ. same: nothing changed. noise: the difference seen is nothing to go by.
Kind = Literal["differs", "same", "noise"]
Verdict = Literal["solid", "weak", "unresolved", "not shown", "no change", "no difference shown", "not comparable"]


@dataclass(frozen=True, slots=True)
class Count:
    """``events`` in ``of`` runs; ``unit`` says what was counted, and only like units are compared."""

    arm: str
    events: int
    of: int
    unit: str = "runs"


@dataclass(frozen=True, slots=True)
class Claim:
    says: str
    kind: Kind
    first: Count
    second: Count


@dataclass(frozen=True, slots=True)
class Luck:
    """Of ``arms`` idle arms, ``runs`` runs each at ``rate``: how often has the best ``fewer`` events less than base?"""

    arms: int
    runs: int
    rate: float
    fewer: int

    @property
    def chance(self) -> float:
        return luck_of_the_best(self.arms, self.runs, self.rate, self.fewer)


@dataclass(frozen=True, slots=True)
class Book:
    """Claims with what they rest on. ``cases``: how many cases the runs share; ``margin``: what is no change."""

    name: str
    about: str
    cases: int
    claims: tuple[Claim, ...]
    margin: float = 0.1
    luck: tuple[Luck, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def new_cases(self) -> str:
        """What the number of cases allows to be said about other cases; empty when it forbids nothing."""
        least = smallest_sign_flip_p(self.cases)
        if least <= ALPHA:
            return ""
        return f"None of this reaches other cases: with {self.cases} cases no two-sided p below {least:.4g} exists."


@dataclass(frozen=True, slots=True)
class Judged:
    """``posterior`` is P(first > second) under Jeffreys priors; ``interval`` that of first - second (Newcombe)."""

    claim: Claim
    verdict: Verdict
    carried: bool
    words: str
    p: float
    posterior: float
    interval: Interval
    intervals: tuple[Interval, Interval]


def read_book(path: Path) -> Book:
    """The claims in a YAML or JSON file. Raises BadRequest with the place of what is wrong."""
    types = {"about": str, "margin": float, "luck": list, "notes": list}
    given = known(read_data(path), str(path), {"name": str, "cases": int, "claims": list}, types)
    claims = tuple(_claim(value, f"{path}: claim {i}") for i, value in enumerate(given["claims"], 1))
    numbers = {"arms": int, "runs": int, "rate": float, "fewer": int}
    luck = tuple(Luck(**known(value, f"{path}: luck", numbers, {})) for value in given.get("luck", ()))
    notes = tuple(map(str, given.get("notes", ())))
    return Book(given["name"], given.get("about", ""), given["cases"], claims, given.get("margin", 0.1), luck, notes)


def judge_claims(book: Book) -> list[Judged]:
    return [_judge(claim, book.margin) for claim in book.claims]


def _judge(claim: Claim, margin: float) -> Judged:
    a, b = claim.first, claim.second
    table = (a.events, a.of, b.events, b.of)
    p, posterior, interval = fisher(*table), beta_greater(*table), newcombe(*table)
    if a.unit != b.unit:
        verdict: Verdict = "not comparable"
        words = f"{a.of} {a.unit} and {b.of} {b.unit} are not counts of the same thing"
    elif claim.kind == "differs":
        verdict, words = _difference(p, posterior)
    else:
        verdict, words = _sameness(claim.kind, p, interval, margin)
    carried = verdict in ("solid", "no change") or (verdict == "no difference shown" and claim.kind == "noise")
    each = (wilson(a.events, a.of), wilson(b.events, b.of))
    return Judged(claim, verdict, carried, words, p, posterior, interval, each)


def _difference(p: float, posterior: float) -> tuple[Verdict, str]:
    leaning = max(posterior, 1 - posterior)
    if p <= ALPHA:
        return "solid", f"p = {p:.2g}"
    if p <= 2 * ALPHA:
        return "weak", f"p = {p:.2g}: suggestive, and not under the threshold"
    if leaning >= 1 - ALPHA:
        return (
            "unresolved",
            f"p = {p:.2g}, though the posterior leans to one side with {leaning:.2f}; more runs would tell",
        )
    return "not shown", f"p = {p:.2g}"


def _sameness(kind: Kind, p: float, interval: Interval, margin: float) -> tuple[Verdict, str]:
    if p <= ALPHA:
        return "not shown", f"the rates differ, p = {p:.2g}"
    reach = f"{interval.low:+.2f} to {interval.high:+.2f}"
    if kind == "noise":
        return "no difference shown", f"p = {p:.2g}; that is not to say that there is none ({reach})"
    if interval.within(margin):
        return "no change", f"within {reach}"
    return "not shown", f"no change only within {reach}, which is more than {margin:g}"


def _claim(value: Any, where: str) -> Claim:
    given = known(value, where, {"says": str, "kind": str, "first": dict, "second": dict}, {})
    if given["kind"] not in get_args(Kind):
        raise BadRequest(f"{where}: kind must be one of {', '.join(get_args(Kind))}, got {given['kind']!r}")
    first, second = (_count(given[side], f"{where}, {side}") for side in ("first", "second"))
    return Claim(given["says"], given["kind"], first, second)


def _count(value: Any, where: str) -> Count:
    count = Count(**known(value, where, {"arm": str, "events": int, "of": int}, {"unit": str}))
    if not 0 <= count.events <= count.of or count.of == 0:
        raise BadRequest(f"{where}: {count.events} events in {count.of} runs cannot be")
    return count


def carried_and_not(judged: Sequence[Judged]) -> tuple[list[Judged], list[Judged]]:
    return [j for j in judged if j.carried], [j for j in judged if not j.carried]
