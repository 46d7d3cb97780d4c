"""One arm against the base in one outcome: the numbers, and the sentences that they carry or do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quaver.evaluate.compare.plan import Metric, Plan
from quaver.evaluate.compare.power import ALPHA
from quaver.evaluate.statistics import Interval, smallest_sign_flip_p

#: What each outcome counts, in words that stand behind "more" and "fewer".
COUNTED: Mapping[Metric, str] = {
    "loop": "loops",
    "parsed": "replies that parse",
    "passed": "replies that pass",
    "checks": "checks passed",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """``difference`` is arm minus base. ``table`` is (k, n) of the arm and of the base; None for shares.

    ``p_cases``: exact stratified permutation within these cases; ``p_new``: sign flips of cases, for new ones;
    ``..._holm`` are corrected over the arms. ``posterior`` is P(arm's rate > base's), Jeffreys priors.
    """

    arm: str
    metric: Metric
    first: float
    second: float
    difference: float
    interval: Interval
    cases: int
    p_cases: float
    p_cases_exact: bool
    p_new: float
    p_cases_holm: float = 1.0
    p_new_holm: float = 1.0
    table: tuple[int, int, int, int] | None = None
    posterior: float | None = None
    p_fisher: float | None = None
    p_mcnemar: float | None = None
    verdict: str = ""
    shown: bool = False
    carried: tuple[str, ...] = ()
    not_carried: tuple[str, ...] = ()


def word(plan: Plan, f: Finding, band: float | None, stopped: str | None) -> Finding:
    """The finding with its verdict. ``band`` is the twin's difference from the base, None without a twin.

    An effect must be significant after Holm and larger than what the base shows against itself.
    """
    numbers = f"{_share(f, first=True)} against {_share(f, first=False)} of {plan.base}"
    what = COUNTED[f.metric]
    low, high = f.interval
    spread = f"95 % {low:+.2f} to {high:+.2f}"
    if stopped is not None:
        words = f"{f.arm}, {what}: {numbers}; the sequential test stopped it. Confirm with fresh seeds."
        return replace(f, verdict="screened", not_carried=(words,))
    beyond = band is not None and abs(f.difference) > band
    if f.p_cases_holm <= ALPHA and beyond:
        return _shown(f, f"{f.arm} has {'more' if f.difference > 0 else 'fewer'} {what}: {numbers} ({spread})")
    if f.interval.within(plan.margin):
        most = f"by no more than {plan.margin:g}"
        claim = f"On these {f.cases} cases {f.arm} changes the share of {what} {most}: {numbers} ({spread})."
        return replace(f, verdict="no change within the margin", carried=(claim,))
    if f.p_cases_holm <= ALPHA:
        known = (
            "no twin tells how much the base differs from itself" if band is None else f"the twin differs by {band:.2f}"
        )
        claim = f"That {f.arm} changes the share of {what}: {numbers}, but {known}."
        return replace(f, verdict="within the noise band", not_carried=(claim,))
    claim = (
        f"That {f.arm} changes the share of {what}, or that it does not: {numbers}, p = {_p(f.p_cases_holm)}; "
        f"the data cannot exclude {low:+.2f} to {high:+.2f}."
    )
    return replace(f, verdict="not shown", not_carried=(claim,))


def _shown(f: Finding, claim: str) -> Finding:
    here = f"On these {f.cases} cases {claim}; p = {_p(f.p_cases_holm)}{'' if f.p_cases_exact else ', Monte Carlo'}."
    if f.p_new_holm <= ALPHA:
        beyond = f"On new cases like these, too: p = {_p(f.p_new_holm)} over {f.cases} cases."
        return replace(f, verdict="shown, also for new cases", shown=True, carried=(here, beyond))
    least = smallest_sign_flip_p(f.cases)
    why = f"with {f.cases} cases no p below {least:.4g} exists" if least > ALPHA else f"p = {_p(f.p_new_holm)}"
    beyond = f"That {f.arm} changes the share of {COUNTED[f.metric]} on new cases: {why}."
    return replace(f, verdict="shown on these cases", shown=True, carried=(here,), not_carried=(beyond,))


def _share(f: Finding, *, first: bool) -> str:
    if f.table is None:
        return f"{f.first if first else f.second:.3f}"
    k, n = f.table[:2] if first else f.table[2:]
    return f"{k}/{n}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
