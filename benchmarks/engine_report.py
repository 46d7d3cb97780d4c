"""What a row of the engine's benchmarks found, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

RULES = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Check:
    """One ratio beside its target. ``figures`` are the medians behind it, in ``unit``."""

    row: str
    what: str
    figures: dict[str, float]
    unit: str
    ratio: float
    rule: Literal[">=", "<="]
    target: float
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return bool(RULES[self.rule](self.ratio, self.target))

    @property
    def line(self) -> str:
        """The row of a Markdown table."""
        figures = ", ".join(f"{name} {value:.4g} {self.unit}".rstrip() for name, value in self.figures.items())
        met = "yes" if self.met else "**no**"
        return f"| {self.row} | {self.what} | {figures} | {self.ratio:.3g} | {self.rule} {self.target:.3g} | {met} |"

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "what": self.what,
            "figures": self.figures,
            "unit": self.unit,
            "ratio": self.ratio,
            "target": f"{self.rule} {self.target:.4g}",
            "met": self.met,
            **self.notes,
        }


HEADING = "| row | what | medians | ratio | target | met |\n|---|---|---|---|---|---|"


def report(machine: dict[str, Any], checks: Sequence[Check]) -> None:
    """Prints the table, then one line of JSON."""
    print(HEADING)
    for check in checks:
        print(check.line)
    print(json.dumps({"benchmark": "engine", **machine, "checks": [check.as_json() for check in checks]}))
