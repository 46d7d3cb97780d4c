"""Fits a calibration on the answers of a run, and thresholds with a guarantee for abstaining.

Three fifths of the records fit the maps; a map is taken only when it pays on records it was not fitted
on (five-fold cross-fitting). The other two fifths, which no map has seen, give the thresholds, because
their guarantees need records that are exchangeable with future ones.

Sources: Guo et al. 2017 (temperature, arXiv 1706.04599), Zadrozny and Elkan 2002 (isotonic), Angelopoulos
et al. 2022 (conformal risk control, arXiv 2208.02814) and 2021 (learn then test, arXiv 2110.01052).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from quaver.errors import BadRequest
from quaver.evaluate.metrics import FLOOR, Columns, Floats, Item, calibration_error, columns, rate_interval
from quaver.evaluate.run import Manifest, Outcome
from quaver.evaluate.statistics import Interval
from quaver.questions.calibration import Calibration, Isotonic, Of, Temperature, bucket

Map = Temperature | Isotonic

#: Shares of wrong answers that people ask for.
TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)
FOLDS = 5
#: Fewest items for a temperature, and for a curve; a curve also needs a tenth of that in each class.
FEW, MANY = 50, 1000
#: Where temperatures are looked for.
COLDEST, HOTTEST = 0.05, 20.0
KINDS = ("noul", "choice", "score")
#: How many thresholds are tried for an error among the answered, and how likely any of them may be wrong.
TRIED, DELTA = 20, 0.05


@dataclass(frozen=True, slots=True)
class Fit:
    """What was found for one bucket or type: log loss (nats) and calibration error before and after.

    The errors after are those on records that the map was not fitted on. ``map`` is None when none paid.
    """

    bucket: str
    n: int
    map: Map | None
    log_loss: tuple[float, float]
    ece: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Threshold:
    """To keep wrong answers within ``target`` of the questions asked or answered, answer at ``least`` or above.

    ``answered`` and ``wrong`` (among the answered, with its 95 % interval) are what that gave on ``n`` items.
    """

    kind: str
    of: Of
    target: float
    least: float
    answered: float
    wrong: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Calibrated:
    calibration: Calibration
    fits: tuple[Fit, ...]
    thresholds: tuple[Threshold, ...]


def calibrate(manifest: Manifest, outcomes: Sequence[Outcome], *, single: bool = False) -> Calibrated:
    """A calibration of the model that answered a run; ``single`` fits one temperature for everything.

    Raises BadRequest when the answers were calibrated already, came from no or several named models,
    or are too few.
    """
    answered = [outcome for outcome in outcomes if outcome.variant is None and outcome.error is None]
    model = _only_model(answered)
    items = [item for outcome in answered for item in outcome.items if len(item.options) > 1]
    fit_on = [item for item in items if _unit(item.record) < 0.6]
    held_out = [item for item in items if _unit(item.record) >= 0.6]
    if len(fit_on) < FEW:
        raise BadRequest(f"the run has {len(fit_on)} answered labelled questions to fit on; at least {FEW} are needed")
    fits = tuple(_single(fit_on)) if single else tuple(_fits(fit_on))
    maps = {fit.bucket: fit.map for fit in fits if fit.map is not None}
    bare = Calibration(model, manifest.asked.get("data", {}).get("sha256", manifest.digest), maps, {})
    settled = [replace(item, probabilities=tuple(bare.apply(item.kind, item.probabilities))) for item in held_out]
    thresholds = tuple(_thresholds(settled))
    by_kind: dict[str, dict[Of, dict[float, float]]] = {}
    for row in thresholds:
        by_kind.setdefault(row.kind, {}).setdefault(row.of, {})[row.target] = row.least
    return Calibrated(replace(bare, thresholds=by_kind), fits, thresholds)


def single_temperature(calibration: Calibration) -> float:
    """The one temperature of every type. Raises BadRequest when there is no such thing to fold."""
    values = {calibration.maps.get(kind) for kind in KINDS}
    found = next(iter(values))
    if len(values) != 1 or not isinstance(found, Temperature):
        raise BadRequest("only a calibration with one temperature for all types can be folded; fit it as a single one")
    return found.value


def control_risk(sure: Floats, losses: Floats, records: int, target: float) -> float:
    """The least confidence at which to answer so that the expected loss per record stays within ``target``.

    ``sure`` [n] and ``losses`` [n] of items, losses scaled so that those of one record sum to at most 1.
    The smallest threshold whose empirical risk R keeps (records * R + 1) / (records + 1) within
    ``target``; infinity when none does (Angelopoulos et al. 2022, theorem 1, with losses up to B = 1).
    """
    order = np.argsort(-sure, kind="stable")
    risk = np.cumsum(losses[order]) / records
    last_of_tie = np.append(np.flatnonzero(np.diff(sure[order])), len(sure) - 1)
    fine = (records * risk[last_of_tie] + 1) / (records + 1) <= target
    # Risk only grows as the threshold falls, so the acceptable ones are a prefix.
    kept = int(np.count_nonzero(fine))
    if kept == len(last_of_tie):
        return 0.0
    return float(sure[order][last_of_tie[kept - 1]]) if kept else math.inf


def control_selected(sure: Floats, wrong: Floats, target: float) -> float:
    """The least confidence at which to answer so that at most ``target`` of the answered are wrong.

    ``sure`` [n] and ``wrong`` [n] (0 or 1) of independent items. True with probability 0.95 over the items:
    exact binomial tests of ``TRIED`` thresholds at even coverages, with Bonferroni's correction (Angelopoulos
    et al. 2021). Infinity when none passes, as with too few items: 117 without an error for 5 %.
    """
    places = np.unique(np.ceil(len(sure) * np.arange(1, TRIED + 1) / TRIED).astype(int)) - 1
    passed = math.inf
    for least in np.sort(sure)[::-1][places]:
        kept = sure >= least
        p = stats.binom.cdf(wrong[kept].sum(), kept.sum(), target)
        if p <= DELTA / TRIED:
            passed = min(passed, float(least))
    return passed


def fit_temperature(items: Sequence[Item]) -> Temperature:
    """The temperature of least log loss."""
    width = max(len(item.probabilities) for item in items)
    logs = np.full((len(items), width), -np.inf)
    for row, item in zip(logs, items, strict=True):
        row[: len(item.probabilities)] = np.log(np.maximum(item.probabilities, 1e-300))
    labels = np.array([item.label for item in items])

    def loss(log_temperature: float) -> float:
        scaled = logs / np.exp(log_temperature)
        return float((np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(len(items)), labels]).mean())

    # Over the logarithm, in which too sure and too unsure by the same factor are equally far from 1.
    found = optimize.minimize_scalar(loss, bounds=(math.log(COLDEST), math.log(HOTTEST)), method="bounded")
    return Temperature(float(np.exp(found.x)))


def fit_isotonic(items: Sequence[Item]) -> Isotonic:
    """The rising curve of least squares; a noul gives its probability of true, other questions every option."""
    pairs = [pair for item in items for pair in _pairs(item)]
    p, y = np.array(pairs).T
    values, places, counts = np.unique(p, return_inverse=True, return_counts=True)
    rising = optimize.isotonic_regression(np.bincount(places, y) / counts, weights=counts).x
    # A curve of few points ends at 0 and 1, where one later mistake would cost an infinite log loss.
    rising = np.clip(rising, 0.5 / len(p), 1 - 0.5 / len(p))
    # Of a flat stretch only its two ends are needed.
    same = np.diff(rising) == 0
    inner = np.concatenate([[False], same[:-1] & same[1:], [False]]) if len(same) else np.array([False])
    return Isotonic(tuple(zip(values[~inner].tolist(), rising[~inner].tolist(), strict=True)))


def _only_model(outcomes: Sequence[Outcome]) -> str:
    models = {outcome.model for outcome in outcomes}
    found = next(iter(models), None)
    if len(models) != 1 or found is None:
        raise BadRequest(f"a calibration belongs to one named model; the run has {sorted(map(str, models))}")
    if any(outcome.calibration for outcome in outcomes):
        raise BadRequest("the answers of this run are calibrated already; ask the model without a calibration")
    return found


def _fits(items: Sequence[Item]) -> Iterable[Fit]:
    """A fit of every type, and of every bucket of it that has enough items and is not all of it."""
    for kind in KINDS:
        of_kind = [item for item in items if item.kind == kind]
        buckets = sorted({bucket(kind, len(item.options)) for item in of_kind} - {kind})
        for name in [kind, *buckets]:
            part = [item for item in of_kind if name in (kind, bucket(kind, len(item.options)))]
            if len(part) >= FEW and (name == kind or len(part) < len(of_kind)):
                yield _fit(name, part)


def _single(items: Sequence[Item]) -> Iterable[Fit]:
    """One temperature, listed under every type."""
    fit = _fit("all", items, curves=False)
    shared = fit.map or Temperature(1.0)
    yield from (replace(fit, bucket=kind, map=shared) for kind in KINDS)


def _fit(name: str, items: Sequence[Item], curves: bool = True) -> Fit:
    """The simplest of no map, a temperature and a curve that the next does not clearly beat on unseen records."""
    best, chosen = list(items), None
    makers: list[Callable[[Sequence[Item]], Map]] = [fit_temperature]
    if curves and _enough(items):
        makers.append(fit_isotonic)
    for maker in makers:
        tried = _cross_fitted(items, maker)
        gain = _losses(best) - _losses(tried)
        # The one-standard-error rule (Breiman et al. 1984): a map that may pay by luck is not worth having.
        if gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)):
            best, chosen = tried, maker
    before, after = columns(items), columns(best)
    return Fit(
        name,
        len(items),
        chosen(items) if chosen else None,
        (float(_losses(items).mean()), float(_losses(best).mean())),
        (calibration_error(before), calibration_error(after)),
    )


def _cross_fitted(items: Sequence[Item], maker: Callable[[Sequence[Item]], Map]) -> list[Item]:
    """``items`` as calibrated by maps fitted without their own fold of records; unchanged when that leaves none."""
    fold = [int(FOLDS * _unit(f"fold {item.record}")) for item in items]
    if len(set(fold)) == 1:
        return list(items)
    maps: Mapping[int, Map] = {
        k: maker([item for item, own in zip(items, fold, strict=True) if own != k]) for k in set(fold)
    }
    return [replace(item, probabilities=tuple(_apply(maps[own], item))) for item, own in zip(items, fold, strict=True)]


def _apply(map_: Map, item: Item) -> Sequence[float]:
    return Calibration("", "", {item.kind: map_}, {}).apply(item.kind, item.probabilities)


def _losses(items: Sequence[Item]) -> Floats:
    return -np.log(np.maximum([item.probabilities[item.label] for item in items], FLOOR))


def _enough(items: Sequence[Item]) -> bool:
    positives = sum(y for item in items for _, y in _pairs(item))
    pairs = sum(1 for item in items for _ in _pairs(item))
    return len(items) >= MANY and min(positives, pairs - positives) >= MANY / 10


def _pairs(item: Item) -> list[tuple[float, float]]:
    if item.kind == "noul":
        return [(item.probabilities[0], float(item.label == 0))]
    return [(p, float(i == item.label)) for i, p in enumerate(item.probabilities)]


def _thresholds(items: Sequence[Item]) -> Iterable[Threshold]:
    for kind in KINDS:
        of_kind = [item for item in items if item.kind == kind]
        if not of_kind:
            continue
        c = columns(of_kind)
        wrong, sizes = 1 - c.right, np.bincount(c.cluster)
        alone = np.unique(c.cluster, return_index=True)[1]  # one item per record: independent ones
        for target in TARGETS:
            least = control_risk(c.top_p, wrong / sizes[c.cluster], len(sizes), target)
            yield _seen(kind, "asked", target, least, c)
        for target in TARGETS:
            yield _seen(kind, "answered", target, control_selected(c.top_p[alone], wrong[alone], target), c)


def _seen(kind: str, of: Of, target: float, least: float, c: Columns) -> Threshold:
    """What a threshold gives on the items that it was chosen on."""
    kept = c.top_p >= least
    share, wrong, interval = float(kept.mean()), float("nan"), Interval(0.0, 1.0)
    if kept.any():
        wrong = float(1 - c.right[kept].mean())
        interval = rate_interval(1 - c.right[kept], c.cluster[kept])
    return Threshold(kind, of, target, least, share, wrong, *interval, len(kept))


def _unit(text: str) -> float:
    """A number in [0, 1) fixed by ``text``."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56
