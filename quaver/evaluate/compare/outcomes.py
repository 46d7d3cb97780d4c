"""What is counted of a record. A call that failed is wrong in everything, and no loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quaver.evaluate.compare.plan import Metric

Record = Mapping[str, Any]


def loops(record: Record) -> bool:
    """A loop of a run that the cap ended; one that stopped by itself is only suspect."""
    loop = record.get("loop")
    return loop is not None and not loop["suspect"]


def passes(record: Record) -> bool:
    return bool(record.get("parsed")) and record["passed"] == record["checks"]


#: Rates (0 or 1) but for ``checks``, which is a share.
OUTCOMES: Mapping[Metric, Callable[[Record], float]] = {
    "loop": lambda record: float(loops(record)),
    "parsed": lambda record: float(record.get("parsed", False)),
    "passed": lambda record: float(passes(record)),
    "checks": lambda record: record["passed"] / record["checks"] if record.get("checks") else 0.0,
}
