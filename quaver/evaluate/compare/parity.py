"""How far an arm's decisions are from the base's, whichever of the two is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.evaluate.compare.reply import labelled, probabilities


@dataclass(frozen=True, slots=True)
class Parity:
    """``same`` of ``decisions`` come down to the base's label; ``shift`` is the largest change of a probability."""

    same: int
    decisions: int
    shift: float


def parity(records: Mapping[tuple[str, str, int], Mapping[str, Any]], arm: str, base: str) -> Parity | None:
    """The arm against the base over the calls that both answered; None when there are none."""
    same = decisions = 0
    shift = 0.0
    for (name, case, seed), record in records.items():
        other = records.get((base, case, seed), {})
        if name != arm or not (record.get("parsed") and other.get("parsed")):
            continue
        ours, theirs = (labelled(json.loads(text)) for text in (record["text"], other["text"]))
        for question in ours.keys() & theirs.keys():
            decisions += 1
            same += ours[question]["label"] == theirs[question]["label"]
            p, q = probabilities(ours[question]), probabilities(theirs[question])
            shift = max([shift, *(abs(p.get(option, 0.0) - q.get(option, 0.0)) for option in p.keys() | q.keys())])
    return Parity(same, decisions, shift) if decisions else None
