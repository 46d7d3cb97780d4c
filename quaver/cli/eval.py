"""``quaver eval``: labelled records against anything that decides."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quaver.cli import options
from quaver.cli.grouped import grouped
from quaver.cli.questions import FILE_HELP, from_file
from quaver.cli.talk import console, print_json, progress
from quaver.errors import BadRequest, ServerError
from quaver.questions.calibration import load_calibration

if TYPE_CHECKING:
    from quaver.evaluate.answerer import Answerer
    from quaver.evaluate.records import Record
    from quaver.evaluate.report.gates import Verdict
    from quaver.evaluate.report.summary import Summary
    from quaver.evaluate.run import Manifest, Settings

GATE_FAILED = 3

#: Where servers of decision models tell their configuration.
SAID = ("/v1/models", "/version", "/health", "/healthz", "/server_info", "/props")


class Dialect(StrEnum):
    systemone = "systemone"
    decisions = "decisions"


class Baseline(StrEnum):
    uniform = "uniform"
    prior = "prior"


@grouped
def evaluate(
    *,
    records: Annotated[str, typer.Argument(help="A .jsonl or .csv file, or module:function.", metavar="RECORDS")],
    questions: Annotated[
        Path | None, typer.Option("--questions", "-q", help=f"For records without questions. {FILE_HELP}")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many records.")] = None,
    model: options.ModelOption = "embedded",
    hardware: options.Hardware,
    reading: options.ReadingOption = options.Reading.auto,
    calibration: options.CalibrationOption = None,
    url: Annotated[str | None, typer.Option(help="Ask the server at this address instead of a model here.")] = None,
    dialect: Annotated[Dialect, typer.Option(help="What the server speaks.")] = Dialect.systemone,
    api_key: Annotated[str | None, typer.Option(envvar="QUAVER_API_KEY", help="The server's key.")] = None,
    served_model: Annotated[str | None, typer.Option(help="Name of the model to ask the server for.")] = None,
    baseline: Annotated[
        Baseline | None, typer.Option(help="Ask a constant guess instead: even, or the share of each label.")
    ] = None,
    expect_model: Annotated[
        str | None, typer.Option(help="Stop unless the answers say that they come from this model.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run file: appended to, and resumed when it is there.")] = Path(
        "eval.jsonl"
    ),
    concurrency: Annotated[int, typer.Option(min=1, help="Records asked at once.")] = 8,
    retries: Annotated[int, typer.Option(min=0, help="Further attempts after a passing failure.")] = 3,
    coherence: Annotated[
        int, typer.Option(min=0, help="Ask also for negations, other orders and wordings of so many records.")
    ] = 0,
    risk: Annotated[float, typer.Option(min=0, max=1, help="The error at which coverage is told.")] = 0.05,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots and the worst cases.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the gates as JUnit XML.")] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(help="Gate: the interval's lower end must reach this, as accuracy=0.9 or noul:auroc=0.8."),
    ] = None,
    fail_over: Annotated[
        list[str] | None, typer.Option(help="Gate: the interval's upper end must not pass this, as ece=0.05.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure how good, how calibrated and how coherent the answers to labelled records are.

    Exit codes: 0 done and every gate passed, 1 something failed, 2 wrong usage, 3 a gate failed.

    Example: quaver eval tickets.jsonl --html report.html --fail-under accuracy=0.9
    """
    from quaver.evaluate.coherence import variants
    from quaver.evaluate.records import read_records
    from quaver.evaluate.report.gates import judge, parse_gates
    from quaver.evaluate.report.summary import summarise
    from quaver.evaluate.run import Settings, read_run

    gates = parse_gates(fail_under or [], fail_over or [])
    rows = read_records(records, from_file(questions) if questions else None, limit)
    with console.status("preparing", spinner="dots"):
        if baseline:
            opened, target, noted = _baseline(baseline, rows)
        elif url:
            opened, target, noted = _server(url, dialect, api_key, served_model)
        else:
            opened, target, noted = _model(model, hardware, reading, calibration)
    manifest = _manifest(records, rows, coherence, target, noted)
    with opened as answerer:
        spread = rows[:: max(1, len(rows) // coherence)][:coherence] if coherence else []
        asked = [*rows, *variants(spread)]
        _run(asked, answerer, out, manifest, Settings(concurrency, retries, expect_model))
    summary = summarise(*read_run(out), risk)
    verdicts = judge(gates, summary)
    _write(summary, verdicts, html, junit)
    _print(summary, verdicts, as_json)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(GATE_FAILED)


Target = tuple[AbstractContextManager["Answerer"], dict[str, Any], dict[str, Any]]


def _baseline(baseline: Baseline, rows: Sequence[Record]) -> Target:
    from quaver.evaluate.answerer import Prior

    return nullcontext(Prior(rows if baseline is Baseline.prior else ())), {"baseline": baseline.value}, {}


def _server(url: str, dialect: Dialect, api_key: str | None, model: str | None) -> Target:
    from quaver.client import Client
    from quaver.evaluate.decisions import DecisionsTransport

    transport = DecisionsTransport() if dialect is Dialect.decisions else None
    client = Client(url, api_key=api_key, model=model, timeout=600.0, retries=0, transport=transport)
    try:
        serves = client.models()
    except (BadRequest, ServerError):  # not every server has a list
        serves = []
    target = {"url": url, "dialect": dialect.value, "asked_for": model, "serves": serves}
    return client, target, {"read_back": _read_back(url, api_key)}


def _read_back(url: str, api_key: str | None) -> dict[str, Any]:
    """What the server says about itself, by path; servers differ in what they have."""
    found: dict[str, Any] = {}
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(base_url=url, headers=headers, timeout=10.0) as http:
        for path in SAID:
            try:
                reply = http.get(path)
                found |= {path: reply.json()} if reply.is_success else {}
            except (httpx.TransportError, ValueError):
                continue
    return found


def _model(model: str, hardware: options.Hardware, reading: options.Reading, calibration: Path | None) -> Target:
    decider = options.load(model, hardware, reading=reading, calibration=calibration)
    applied = load_calibration(calibration).id if calibration else None
    asked = {"device": hardware.device.value, "dtype": hardware.dtype.value, "reading": reading.value}
    target = {"model": decider.name, "calibration": applied, **asked}
    return decider, target, {"limits": str(decider.limits), "torch": version("torch")}


def _manifest(
    source: str, rows: Sequence[Record], coherence: int, target: dict[str, Any], noted: dict[str, Any]
) -> Manifest:
    from quaver.evaluate.records import digest
    from quaver.evaluate.run import Manifest

    data = {"records": len(rows), "sha256": digest(rows), "coherence": coherence}
    machine = {"quaver": version("quaver"), "python": platform.python_version(), "machine": platform.platform()}
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest({"data": data, "target": target}, {"source": source, "begun": begun, **machine, **noted})


def _run(rows: Sequence[Record], answerer: Answerer, out: Path, manifest: Manifest, settings: Settings) -> None:
    from quaver.evaluate.run import run

    with progress() as bar:
        task = bar.add_task("answering", total=len(rows))
        run(rows, answerer, out, manifest, settings, lambda done: bar.update(task, completed=done))


def _write(summary: Summary, verdicts: Sequence[Verdict], html: Path | None, junit: Path | None) -> None:
    from quaver.evaluate.report.gates import junit as junit_xml

    if html:
        from quaver.evaluate.report.page import page

        html.write_text(page(summary, verdicts), encoding="utf-8")
    if junit:
        junit.write_text(junit_xml(verdicts, summary), encoding="utf-8")


def _print(summary: Summary, verdicts: Sequence[Verdict], as_json: bool) -> None:
    for warning in summary.warnings:
        console.print("warning:", style="yellow", end=" ")
        console.print(warning, markup=False, highlight=False)
    for verdict in verdicts:
        console.print("passed" if verdict.passed else "failed", style="green" if verdict.passed else "red", end=" ")
        console.print(verdict.words, markup=False, highlight=False)
    if as_json:
        gates = [{"gate": str(v.gate), "passed": v.passed, "words": v.words} for v in verdicts]
        print_json({**summary.to_json(), "gates": gates})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "metric", "value", "95 % interval", "n", "noise floor"):
        table.add_column(name, justify="left" if name in ("", "metric") else "right")
    for group in summary.groups:
        for i, m in enumerate(group.metrics):
            numbers = (m.value, m.low, m.high, m.floor)
            value, low, high, noise = ("" if x is None or isnan(x) else f"{x:.3f}" for x in numbers)
            table.add_row(group.name if i == 0 else "", m.name, value, f"{low} – {high}", str(m.n), noise)
        table.add_section()
    Console().print(table)
