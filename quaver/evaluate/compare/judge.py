"""Records to findings: what was measured, which claims the data carry and which they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from scipy import stats

from quaver.evaluate.compare.gate import Standing
from quaver.evaluate.compare.outcomes import OUTCOMES, Record
from quaver.evaluate.compare.parity import Parity, parity
from quaver.evaluate.compare.plan import TWIN, Metric, Plan
from quaver.evaluate.compare.power import ALPHA
from quaver.evaluate.compare.run import Job, RecordFile, decided
from quaver.evaluate.compare.wording import Finding, word
from quaver.evaluate.statistics import (
    Interval,
    beta_greater,
    fisher,
    holm,
    mcnemar,
    newcombe,
    sign_flip,
    stratified_permutation,
    wilson,
)

#: Share of failed calls above which an arm's numbers say more about the network than about the arm.
MOST_FAILURES = 0.02


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean outcome of an arm over ``runs``; ``interval`` is Wilson's for rates, Student's over cases for shares."""

    metric: Metric
    value: float
    runs: int
    successes: int | None
    interval: Interval


@dataclass(frozen=True, slots=True)
class Measured:
    """An arm by itself. ``suspects``: repetitions that ended by themselves; ``failures``: calls without a reply.

    ``seconds`` are the mean of a call, ``tokens`` all prompt tokens, ``parity`` is for decisions only.
    """

    arm: str
    standing: Standing
    rates: tuple[Rate, ...]
    runs: int
    failures: int
    suspects: int
    seconds: float
    tokens: int
    parity: Parity | None


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a report prints. ``band`` is the twin's difference in the primary outcome."""

    plan: Plan
    measured: tuple[Measured, ...]
    findings: tuple[Finding, ...]
    band: float | None
    carried: tuple[str, ...]
    not_carried: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def proven(self) -> bool:
        return all(measured.standing.state == "proven" for measured in self.measured)

    @property
    def worse(self) -> bool:
        """Whether an arm is shown to be worse than the base in the primary outcome."""
        bad = 1 if self.plan.primary == "loop" else -1
        return any(f.shown and f.difference * bad > 0 for f in self.findings if f.metric == self.plan.primary)


def judge(plan: Plan, book: RecordFile) -> Result:
    """Judge the runs of the arms that kept their proof; the others only have their standing told."""
    standings = {arm.name: _final(plan, book, arm.name) for arm in plan.arms}
    measured = tuple(_measure(plan, book.records, standings[arm.name]) for arm in plan.arms)
    usable = [m.arm for m in measured if m.standing.state == "proven" and m.failures <= MOST_FAILURES * max(1, m.runs)]
    metrics = [metric for metric in OUTCOMES if _asked_for(plan, metric)]
    findings: list[Finding] = []
    bands: dict[Metric, float] = {}
    if plan.base in usable:
        rivals = [arm.name for arm in plan.rivals if arm.name in usable]
        for metric in metrics:
            if plan.base + TWIN in usable:
                bands[metric] = abs(_compare(plan, book.records, plan.base + TWIN, metric).difference)
            findings += _corrected([_compare(plan, book.records, arm, metric) for arm in rivals])
    stopped = {arm.name: decided(plan, book.records, arm.name) for arm in plan.rivals}
    findings = [word(plan, finding, bands.get(finding.metric), stopped[finding.arm]) for finding in findings]
    primary = [finding for finding in findings if finding.metric == plan.primary]
    return Result(
        plan,
        measured,
        tuple(findings),
        bands.get(plan.primary),
        tuple(words for finding in primary for words in finding.carried),
        (*(words for finding in primary for words in finding.not_carried), *_unjudged(measured, usable)),
        (*plan.design.warnings(), *_drift(plan, book.records)),
    )


def _final(plan: Plan, book: RecordFile, arm: str) -> Standing:
    """The last standing, but a no-op when every answer of the arm is the base's, byte for byte."""
    standing = book.last.get(arm, Standing(arm, "refused", "it was never run"))
    if arm in (plan.base, plan.base + TWIN) or standing.state != "proven":
        return standing
    ours, theirs = (
        {key[1:]: r.get("text") for key, r in book.records.items() if key[0] == name} for name in (arm, plan.base)
    )
    shared = [job for job in ours if ours[job] is not None and theirs.get(job) is not None]
    if shared and all(ours[job] == theirs[job] for job in shared):
        why = f"no-op or not applied: all {len(shared)} answers are the base's, byte for byte"
        return replace(standing, state="no-op", why=why)
    return standing


def _measure(plan: Plan, records: Mapping[Job, Record], standing: Standing) -> Measured:
    ours = [record for key, record in records.items() if key[0] == standing.arm]
    answered = [record for record in ours if "error" not in record]
    rates = tuple(_rate(plan, records, standing.arm, m) for m in OUTCOMES if ours and _asked_for(plan, m))
    return Measured(
        standing.arm,
        standing,
        rates,
        len(ours),
        len(ours) - len(answered),
        sum(1 for record in answered if record["loop"] is not None and record["loop"]["suspect"]),
        fmean(record["seconds"] for record in answered) if answered else 0.0,
        sum(int(record["facts"].get("prompt_tokens", 0)) for record in answered),
        None if plan.endpoint == "chat" else parity(records, standing.arm, plan.base),
    )


def _asked_for(plan: Plan, metric: Metric) -> bool:
    if metric == "loop":
        return plan.endpoint == "chat"
    return metric == "parsed" or any(case.checks for case in plan.cases)


def _by_case(plan: Plan, records: Mapping[Job, Record], arm: str, metric: Metric) -> dict[str, list[float]]:
    """Outcomes by case. Failed calls count as wrong, and are no loops."""
    outcome = OUTCOMES[metric]
    found: dict[str, list[float]] = {}
    for case in plan.cases:
        runs = [records.get((arm, case.id, seed)) for seed in plan.seeds]
        found[case.id] = [outcome(record) for record in runs if record is not None]
    return {case: outcomes for case, outcomes in found.items() if outcomes}


def _rate(plan: Plan, records: Mapping[Job, Record], arm: str, metric: Metric) -> Rate:
    by_case = _by_case(plan, records, arm, metric)
    flat = [outcome for outcomes in by_case.values() for outcome in outcomes]
    if metric == "checks":
        return Rate(metric, fmean(flat), len(flat), None, _student([fmean(x) for x in by_case.values()], (0.0, 1.0)))
    return Rate(metric, fmean(flat), len(flat), int(sum(flat)), wilson(int(sum(flat)), len(flat)))


def _compare(plan: Plan, records: Mapping[Job, Record], arm: str, metric: Metric) -> Finding:
    """The arm against the base on the cases that both have."""
    ours, theirs = _by_case(plan, records, arm, metric), _by_case(plan, records, plan.base, metric)
    cases = [case for case in ours if case in theirs]
    a, b = [ours[case] for case in cases], [theirs[case] for case in cases]
    differences = [fmean(x) - fmean(y) for x, y in zip(a, b, strict=True)]
    flat_a, flat_b = [v for x in a for v in x], [v for x in b for v in x]
    within = stratified_permutation(a, b, seed=plan.order_seed)
    finding = Finding(
        arm=arm,
        metric=metric,
        first=fmean(flat_a),
        second=fmean(flat_b),
        difference=fmean(flat_a) - fmean(flat_b),
        interval=_student(differences, (-1.0, 1.0)),
        cases=len(cases),
        p_cases=within.p,
        p_cases_exact=within.exact,
        p_new=sign_flip(differences, seed=plan.order_seed).p,
    )
    if metric == "checks":
        return finding
    table = (int(sum(flat_a)), len(flat_a), int(sum(flat_b)), len(flat_b))
    paired = [(x[0], y[0]) for x, y in zip(a, b, strict=True)] if len(plan.seeds) == 1 else []
    return replace(
        finding,
        table=table,
        interval=newcombe(*table),
        posterior=beta_greater(*table),
        p_fisher=fisher(*table),
        p_mcnemar=mcnemar(sum(x > y for x, y in paired), sum(x < y for x, y in paired)) if paired else None,
    )


def _corrected(findings: Sequence[Finding]) -> list[Finding]:
    """Holm over the arms, for each of the two questions by itself."""
    within, new = holm([f.p_cases for f in findings]), holm([f.p_new for f in findings])
    return [replace(f, p_cases_holm=p, p_new_holm=q) for f, p, q in zip(findings, within, new, strict=True)]


def _unjudged(measured: Sequence[Measured], usable: Sequence[str]) -> list[str]:
    said = []
    for m in measured:
        if m.standing.state == "no-op":
            said.append(f"Anything about {m.arm}: {m.standing.why}.")
        elif m.standing.state != "proven":
            said.append(f"Anything about {m.arm}: {m.standing.state}; {m.standing.why}.")
        elif m.arm not in usable:
            said.append(f"Anything about {m.arm}: {m.failures} of {m.runs} calls failed.")
    return said


def _drift(plan: Plan, records: Mapping[Job, Record]) -> list[str]:
    """Whether the frame arms did worse or better at the end of the run than at its beginning."""
    said = []
    for arm in dict.fromkeys((plan.base, plan.control or plan.base)):
        ours = sorted((r for key, r in records.items() if key[0] == arm), key=lambda r: r["order"])
        half = len(ours) // 2
        early, late = ([OUTCOMES[plan.primary](r) for r in part] for part in (ours[:half], ours[half:]))
        if half >= 3 and stats.mannwhitneyu(early, late).pvalue <= ALPHA:
            said.append(
                f"{arm} may have moved: {plan.primary} {fmean(early):.2f} early in the run, {fmean(late):.2f} late"
            )
    return said


def _student(values: Sequence[float], bounds: tuple[float, float]) -> Interval:
    """Student's 95 % interval of a mean over cases, within ``bounds``; all of them when one case is all there is."""
    if len(values) < 2:
        return Interval(*bounds)
    if max(values) == min(values):
        # Equal cases do not prove that the next one is equal: as many may differ as Wilson allows, fully.
        spread = wilson(0, len(values)).high
        return Interval(max(bounds[0], values[0] - spread), min(bounds[1], values[0] + spread))
    found = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    return Interval(max(bounds[0], float(found.low)), min(bounds[1], float(found.high)))
