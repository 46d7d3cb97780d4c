"""Gates: conditions on a run that decide an exit code, judged on the interval's unfavourable end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from xml.etree import ElementTree

from quaver.errors import BadRequest
from quaver.evaluate.metrics import Metric
from quaver.evaluate.report.summary import Summary


@dataclass(frozen=True, slots=True)
class Gate:
    """``group metric`` must be at least (``under`` fails) or at most (``over`` fails) ``limit``.

    At least is judged on the lower end of the 95 % interval, at most on the upper end, so luck passes no gate.
    """

    group: str
    metric: str
    limit: float
    at_least: bool

    def __str__(self) -> str:
        place = "" if self.group == "all" else f"{self.group}:"
        return f"{place}{self.metric} {'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    gate: Gate
    passed: bool
    words: str


def parse_gates(under: Sequence[str], over: Sequence[str]) -> list[Gate]:
    """Gates of ``--fail-under`` and ``--fail-over``: ``accuracy=0.9``, or ``noul:ece=0.05`` for one group."""
    return [_parse(text, True) for text in under] + [_parse(text, False) for text in over]


def judge(gates: Sequence[Gate], summary: Summary) -> list[Verdict]:
    """One verdict per gate. A metric that the run does not have, or that is not defined, fails its gate."""
    return [_judge(gate, summary) for gate in gates]


def junit(verdicts: Sequence[Verdict], summary: Summary) -> str:
    """A JUnit XML document: one case per gate, and one that every record was answered."""
    failed = sum(summary.errors.values())
    cases = [(str(v.gate), v.passed, v.words) for v in verdicts]
    cases.append(("every record was answered", not failed, f"{failed} requests failed: {summary.errors}"))
    suite = ElementTree.Element(
        "testsuite", name="quaver eval", tests=str(len(cases)), failures=str(sum(not passed for _, passed, _ in cases))
    )
    for name, passed, words in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="quaver.eval", name=name)
        if not passed:
            ElementTree.SubElement(case, "failure", message=words)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _parse(text: str, at_least: bool) -> Gate:
    found = re.fullmatch(r"(?:(?P<group>.+):)?(?P<metric>[\w.]+)=(?P<limit>[-+\d.eE]+)", text.strip())
    try:
        if found is None:
            raise ValueError
        return Gate(found["group"] or "all", found["metric"], float(found["limit"]), at_least)
    except ValueError:
        raise BadRequest(f"gate {text!r} does not have the form metric=number or group:metric=number") from None


def _metrics(name: str, summary: Summary) -> Sequence[Metric]:
    """The metrics of a group by its name, or by the only question in it; none when there is no such group."""
    named = (group for group in summary.groups if group.name == name)
    alone = (group for group in summary.groups if {item.question for item in group.items} == {name})
    return next((group.metrics for group in chain(named, alone)), ())


def _judge(gate: Gate, summary: Summary) -> Verdict:
    metrics = {metric.name: metric for metric in _metrics(gate.group, summary)}
    metric = metrics.get(gate.metric)
    if metric is None:
        known = ", ".join(metrics) or f"the groups {', '.join(group.name for group in summary.groups)}"
        return Verdict(gate, False, f"{gate}: the run has no such metric; it has {known}")
    end = metric.low if gate.at_least else metric.high
    passed = end >= gate.limit if gate.at_least else end <= gate.limit
    side = "lower" if gate.at_least else "upper"
    words = f"{gate}: {metric.value:.4g}, 95 % {metric.low:.4g} to {metric.high:.4g}, n = {metric.n}"
    return Verdict(gate, passed, f"{words}; the {side} end {'passes' if passed else 'does not pass'}")
