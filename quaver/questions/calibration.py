"""A calibration: what it does to probabilities, and when it asks to abstain. Pure, without tensors.

It is fitted by ``evaluate.calibrate``, kept as a small JSON file and applied once, to the
probabilities of one model revision. A map belongs to a *bucket*: a question type and a range of
option counts, because models are over-confident to another degree with two options than with fifty.

Sources: temperature scaling, Guo et al. 2017 (arXiv 1706.04599); isotonic one-vs-rest maps, Zadrozny
and Elkan 2002; thresholds, Angelopoulos et al. 2022, "Conformal risk control" (arXiv 2208.02814), and
2021, "Learn then test" (arXiv 2110.01052).
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from quaver.errors import BadRelease, BadRequest

#: Smallest option count of each range; a range ends where the next begins. Each is about twice as wide as the one
#: before it, because few records have many options.
RANGES = (1, 3, 5, 9, 17, 33)

#: Share of the identity in an isotonic map, so that no two probabilities become equal and the best option stays.
IDENTITY_SHARE = 1e-3

#: What an error is a share of: of all questions asked, or of those that are answered and not abstained from.
Of = Literal["asked", "answered"]
OFS: tuple[Of, ...] = ("asked", "answered")


def bucket(kind: str, options: int) -> str:
    """The bucket of a question: ``noul``, ``choice 2``, ``score 3-4``, ``choice 33+``."""
    if kind == "noul":
        return kind
    place = bisect_right(RANGES, options)
    if place == len(RANGES):
        return f"{kind} {RANGES[-1]}+"
    # A single option is certain and never mapped, so the range from 1 on is that of 2.
    return f"{kind} 2" if place == 1 else f"{kind} {RANGES[place - 1]}-{RANGES[place] - 1}"


@dataclass(frozen=True, slots=True)
class Temperature:
    """Logits divided by ``value``: above 1 less certain, below 1 more. The order of options stays."""

    value: float

    def __call__(self, probabilities: Sequence[float]) -> list[float]:
        logs = [math.log(p) / self.value if p > 0 else -math.inf for p in probabilities]
        # So that the largest weight is 1 and none overflows.
        top = max(logs)
        return _normalised([math.exp(x - top) for x in logs])

    def to_json(self) -> dict[str, Any]:
        return {"temperature": self.value}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising curve through ``knots``, (probability, calibrated probability), linear between them.

    A noul is mapped by its probability of *true*; the options of other questions one by one, and normalised.
    """

    knots: tuple[tuple[float, float], ...]

    def __call__(self, probabilities: Sequence[float]) -> list[float]:
        return _normalised([self.at(p) for p in probabilities])

    def noul(self, true: float) -> list[float]:
        mapped = self.at(true)
        return [mapped, 1.0 - mapped]

    def at(self, p: float) -> float:
        place = bisect_right(self.knots, p, key=lambda knot: knot[0])
        (x0, y0), (x1, y1) = self.knots[max(0, place - 1)], self.knots[min(place, len(self.knots) - 1)]
        y = y0 if x1 <= x0 else y0 + (y1 - y0) * (p - x0) / (x1 - x0)
        return (1 - IDENTITY_SHARE) * y + IDENTITY_SHARE * p

    def to_json(self) -> dict[str, Any]:
        return {"isotonic": [list(knot) for knot in self.knots]}


@dataclass(frozen=True, slots=True)
class Calibration:
    """``maps`` by bucket, or by question type where a bucket had too few records; no entry leaves as is.

    ``thresholds``: by question type and what the error is a share of, target error to the least largest
    probability (after ``apply``) at which to answer; infinity where the target cannot be promised.
    ``data`` is the sha256 of the records.
    """

    model: str
    data: str
    maps: Mapping[str, Temperature | Isotonic]
    thresholds: Mapping[str, Mapping[Of, Mapping[float, float]]]

    @property
    def id(self) -> str:
        """What an answer states as ``x_calibration``: twelve hex digits of the content."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def require(self, model: str) -> None:
        """BadRelease unless the calibration was fitted on ``model``, the versioned name that replies carry."""
        if model != self.model:
            raise BadRelease(
                f"the calibration {self.id} was fitted on {self.model} and cannot serve {model}; "
                "fit one on answers of this model with quaver calibrate"
            )

    def apply(self, kind: str, probabilities: Sequence[float]) -> list[float]:
        """Calibrated probabilities in the same order; they sum to 1 and the same option is best."""
        found = self.maps.get(bucket(kind, len(probabilities)), self.maps.get(kind))
        if found is None or len(probabilities) < 2:
            return list(probabilities)
        # The curve was fitted on the side of true; mapping both sides and normalising would bend it.
        if isinstance(found, Isotonic) and kind == "noul":
            return found.noul(probabilities[0])
        return found(probabilities)

    def threshold(self, kind: str, target: float, of: Of = "asked") -> float:
        """The least largest probability at which to answer a question of type ``kind``, for a target error.

        Answering from there on promises, for requests like those it was fitted on: of ``asked``, in
        expectation at most ``target`` of all questions get a wrong answer; of ``answered``, with 95 %
        certainty at most ``target`` of the answers given are wrong. BadRequest for an unknown ``target``.
        """
        known = self.thresholds.get(kind, {}).get(of, {})
        if target not in known:
            targets = ", ".join(f"{t:g}" for t in sorted(known)) or "none"
            raise BadRequest(
                f"the calibration has no threshold of {kind} questions for a target error of {target:g}; "
                f"it has {targets}",
                ("x_abstain",),
            )
        return known[target]

    def to_json(self) -> dict[str, Any]:
        return {
            "quaver_calibration": 1,
            "model": self.model,
            "data": self.data,
            "maps": {name: found.to_json() for name, found in self.maps.items()},
            "thresholds": {
                kind: {of: _row_to_json(row) for of, row in rows.items()} for kind, rows in self.thresholds.items()
            },
        }

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")


def load_calibration(path: Path) -> Calibration:
    """The calibration in a file that ``save`` wrote. BadRelease, with the reason, when it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["quaver_calibration"] != 1:
            raise ValueError(f"its format is {content['quaver_calibration']!r}; this version reads 1")
        return Calibration(
            str(content["model"]),
            str(content["data"]),
            {name: _map(value) for name, value in content["maps"].items()},
            {kind: {of: _row(rows[of]) for of in OFS if of in rows} for kind, rows in content["thresholds"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRelease(f"{path} is not a calibration of quaver: {error}") from error


def _row_to_json(row: Mapping[float, float]) -> dict[str, float | None]:
    # JSON has no infinity.
    return {f"{target:g}": None if math.isinf(least) else least for target, least in row.items()}


def _row(value: Mapping[str, Any]) -> dict[float, float]:
    return {float(target): math.inf if least is None else float(least) for target, least in value.items()}


def _map(value: Mapping[str, Any]) -> Temperature | Isotonic:
    if "temperature" in value:
        temperature = float(value["temperature"])
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature {temperature} is not a positive number")
        return Temperature(temperature)
    knots = tuple((float(x), float(y)) for x, y in value["isotonic"])
    rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(knots))
    if not knots or not rising or not all(0 <= x <= 1 and 0 <= y <= 1 for x, y in knots):
        raise ValueError("an isotonic map needs knots within 0 and 1 that rise")
    return Isotonic(knots)


def _normalised(weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [w / total for w in weights]
