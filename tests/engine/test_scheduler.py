"""The order of work and the parts of a step, without a model."""

from dataclasses import dataclass, field

import pytest

from quaver.engine.scheduler import Policy, order, plan


@dataclass
class Progress:
    remaining: int
    divisible: bool = True

    def part(self, budget: int) -> int:
        return min(self.remaining, max(1, budget)) if self.divisible else self.remaining


@dataclass
class Waiting:
    name: str
    tokens: int
    priority: int = 0
    served: float = 0.0
    alone: bool = False
    divisible: bool = True
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(self.tokens, self.divisible)

    @property
    def remaining(self) -> int:
        return self.progress.remaining


def names(waiting: list[Waiting], now: float = 1.0, patience: float = 5.0) -> str:
    return "".join(work.name for work in order(waiting, Policy(100, patience=patience), now))


def test_the_shortest_goes_first() -> None:
    assert names([Waiting("a", 300), Waiting("b", 20), Waiting("c", 100)]) == "bca"


def test_priority_goes_before_length() -> None:
    assert names([Waiting("a", 300, priority=-1), Waiting("b", 20), Waiting("c", 10, priority=1)]) == "abc"


def test_who_was_passed_over_for_too_long_goes_first() -> None:
    waiting = [Waiting("a", 300, served=1.0), Waiting("b", 20, served=8.0), Waiting("c", 900, served=0.5)]
    assert names(waiting, now=9.0) == "cab"


def test_a_giant_never_starves_and_never_stalls_the_short() -> None:
    """A giant beside an endless stream of short prompts: it gets on, and each of them waits for one part at most."""
    giant, now, waits = Waiting("giant", 2_000), 0.0, []
    policy = Policy(step_tokens=100, patience=3.0)
    short: list[tuple[float, Waiting]] = []
    while giant.remaining and now < 1_000:
        short.append((now, Waiting("s", 60, served=now)))
        parts = plan(order([giant, *(work for _, work in short)], policy, now), policy)
        now += 1.0
        for work, tokens in parts:
            work.progress.remaining -= tokens
            work.served = now
        waits += [now - since for since, work in short if not work.remaining]
        short = [(since, work) for since, work in short if work.remaining]
    assert not giant.remaining
    assert max(waits) <= 4.0


def test_a_step_is_filled_but_not_overfilled() -> None:
    waiting = [Waiting("a", 30), Waiting("b", 40), Waiting("c", 500), Waiting("d", 600)]
    assert [(work.name, tokens) for work, tokens in plan(waiting, Policy(100))] == [("a", 30), ("b", 40), ("c", 30)]


def test_where_time_goes_by_the_token_the_short_do_not_wait_for_the_long() -> None:
    policy = Policy(1000, together=100)
    lengths = {"a": 30, "b": 90, "c": 120, "d": 400, "e": 2000}
    waiting = [Waiting(name, tokens) for name, tokens in lengths.items()]
    assert [work.name for work, _ in plan(waiting, policy)] == ["a", "b", "c"]
    assert [(work.name, tokens) for work, tokens in plan(waiting[3:], policy)] == [("d", 400)]
    assert [(work.name, tokens) for work, tokens in plan(waiting[4:], policy)] == [("e", 1000)]


def test_what_cannot_be_divided_is_taken_whole_and_first_only() -> None:
    waiting = [Waiting("a", 300, divisible=False), Waiting("b", 40)]
    assert [(work.name, tokens) for work, tokens in plan(waiting, Policy(100))] == [("a", 300)]
    waiting = [Waiting("b", 40), Waiting("a", 300, divisible=False), Waiting("c", 50)]
    assert [work.name for work, _ in plan(waiting, Policy(100))] == ["b", "c"]


@pytest.mark.parametrize(("first", "expected"), [(True, ["x"]), (False, ["a", "c"])])
def test_who_has_to_be_alone_is(first: bool, expected: list[str]) -> None:
    waiting = [Waiting("a", 10), Waiting("c", 10)]
    waiting.insert(0 if first else 1, Waiting("x", 10, alone=True))
    assert [work.name for work, _ in plan(waiting, Policy(100))] == expected


def test_rows_of_a_step_are_bounded() -> None:
    waiting = [Waiting(str(i), 1) for i in range(10)]
    assert len(plan(waiting, Policy(100, step_rows=3))) == 3


def test_no_more_prompts_are_opened_than_fit() -> None:
    opened = []

    def ready():  # type: ignore[no-untyped-def]
        for work in [Waiting(str(i), 60) for i in range(10)]:
            opened.append(work)
            yield work

    plan(ready(), Policy(100))
    assert len(opened) == 2
