"""What a design can show before it is run: power, least p-values, the luck of many arms, and when to stop.

Power is that of Fisher's exact test between two arms of equal size; runs of one case share the case,
so these figures are the optimistic end (see ``docs/compare.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from quaver.evaluate.statistics import smallest_sign_flip_p

ALPHA = 0.05
POWER = 0.8
#: Rates that the table starts from: a common failure, and one that nearly always happens.
START_RATES = (0.4, 0.8)
_MOST_RUNS = 400


@lru_cache(maxsize=512)
def _rejects(n: int, alpha: float) -> NDArray[np.bool_]:
    """(n+1, n+1): whether k1 of n against k2 of n has a two-sided Fisher p of at most ``alpha``."""
    rejects = np.zeros((n + 1, n + 1), dtype=bool)
    for both in range(2 * n + 1):
        first = np.arange(max(0, both - n), min(n, both) + 1)
        mass = stats.hypergeom.pmf(first, 2 * n, both, n)
        # The tables no likelier than the one seen, with scipy's tolerance for ties.
        p = np.where(mass[None, :] <= mass[:, None] * (1 + 1e-7), mass[None, :], 0.0).sum(axis=1)
        rejects[first, both - first] = p <= alpha
    return rejects


def power(rate1: float, rate2: float, n: int, alpha: float = ALPHA) -> float:
    """Chance that Fisher's test on ``n`` runs per arm finds the difference between two true rates."""
    k = np.arange(n + 1)
    first, second = stats.binom.pmf(k, n, rate1), stats.binom.pmf(k, n, rate2)
    return float(first @ _rejects(n, alpha) @ second)


def detectable(rate: float, n: int, *, up: bool, wanted: float = POWER, alpha: float = ALPHA) -> float | None:
    """The nearest rate, in hundredths, that ``n`` runs per arm tell from ``rate`` with the wanted power."""
    start = round(rate * 100)
    steps = range(start, 101) if up else range(start, -1, -1)
    return next((s / 100 for s in steps if power(rate, s / 100, n, alpha) >= wanted), None)


def runs_needed(rate1: float, rate2: float, wanted: float = POWER, alpha: float = ALPHA) -> int | None:
    """Least runs per arm with the wanted power; None above 400."""
    return next((n for n in range(2, _MOST_RUNS + 1) if power(rate1, rate2, n, alpha) >= wanted), None)


def luck_of_the_best(arms: int, n: int, rate: float, fewer: int) -> float:
    """Chance that the best of ``arms`` arms without any effect shows at least ``fewer`` failures less than base."""
    k = np.arange(n + 1)
    base = stats.binom.pmf(k, n, rate)
    one_arm = stats.binom.cdf(k - fewer, n, rate)
    return float(base @ (1 - (1 - one_arm) ** arms))


@dataclass(frozen=True, slots=True)
class Design:
    """What ``cases`` x ``seeds`` runs per arm and ``arms`` arms against one base can and cannot show."""

    cases: int
    seeds: int
    arms: int

    @property
    def runs(self) -> int:
        return self.cases * self.seeds

    @property
    def least_case_p(self) -> float:
        """Least two-sided p of a claim about new cases, before the correction for several arms."""
        return smallest_sign_flip_p(self.cases)

    @property
    def carries_new_cases(self) -> bool:
        """Whether any outcome at all could carry a claim about new cases."""
        return self.least_case_p * max(1, self.arms) <= ALPHA

    def table(self) -> list[dict[str, float | None]]:
        """Rows ``{"from", "down_to", "up_to"}``: rates detectable with 80 % power, None where none is."""
        return [
            {
                "from": rate,
                "down_to": detectable(rate, self.runs, up=False),
                "up_to": detectable(rate, self.runs, up=True),
            }
            for rate in START_RATES
        ]

    def sentences(self) -> list[str]:
        """The table in words."""
        said = []
        for row in self.table():
            ends = [f"{row[end]:.0%}" if row[end] is not None else "nothing" for end in ("down_to", "up_to")]
            said.append(
                f"{self.runs} runs per arm tell a rate of {row['from']:.0%} from {ends[0]} below and {ends[1]} above it"
            )
        return said

    def warnings(self) -> list[str]:
        """What a person must know before spending the runs."""
        said = []
        if self.least_case_p > ALPHA:
            said.append(f"with {self.cases} cases no two-sided p below {self.least_case_p:.4g} exists for new cases")
        elif not self.carries_new_cases:
            said.append(f"with {self.cases} cases and {self.arms} arms no claim about new cases survives Holm")
        if power(0.8, 0.2, self.runs) < POWER:
            said.append(
                f"{self.runs} runs per arm find even 80 % against 20 % with a chance of only "
                f"{power(0.8, 0.2, self.runs):.2f}; {runs_needed(0.8, 0.2)} are needed for {POWER:.0%}"
            )
        if self.seeds > self.cases:
            said.append("more cases with fewer seeds would show more at the same cost")
        return said


Decision = Literal["first", "second"]


@dataclass(frozen=True, slots=True)
class Sprt:
    """Wald's sequential test (1945) of one arm's event rate: ``first`` against ``second``, errors ``alpha``, ``beta``.

    For screening: an arm is stopped as soon as it crosses, and a survivor is confirmed with fresh seeds.
    """

    first: float
    second: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.first < 1 and 0 < self.second < 1) or self.first == self.second:
            raise ValueError("a sequential test needs two different rates strictly between 0 and 1")
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise ValueError("a sequential test's alpha and beta must lie strictly between 0 and 0.5")

    def decide(self, events: int, n: int) -> Decision | None:
        """Which rate ``events`` in ``n`` runs have settled on; None: go on."""
        ratio = events * log(self.second / self.first) + (n - events) * log((1 - self.second) / (1 - self.first))
        if ratio >= log((1 - self.beta) / self.alpha):
            return "second"
        if ratio <= log(self.beta / (1 - self.alpha)):
            return "first"
        return None
