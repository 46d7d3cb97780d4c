"""``quaver compare``: arms that prove what they ran, or claims judged by their counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from quaver.cli import options
from quaver.cli.talk import console, print_json, progress

UNPROVEN = 3
NOT_CARRIED = 4


def compare(
    file: Annotated[
        Path, typer.Argument(help="A plan (arms, cases, seeds) or a book of claims (counts); YAML or JSON.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of records.jsonl, report.html and report.json; one named like the file.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Calls at once; above 1 only where neighbours do not change an answer.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option(help="Say what the plan can show, and ask nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare arms that prove what they ran, and say which claims the data carry.

    Exit codes: 0 done, 3 an arm was not proven (refused, quarantined, no-op), 4 a claim is not carried or
    an arm is shown to be worse than the base.
    """
    from quaver.evaluate import compare as arms
    from quaver.evaluate.files import read_data

    folder = out or Path(file.stem)
    content = read_data(file)
    if isinstance(content, dict) and "claims" in content:
        book = arms.read_book(file)
        judged = arms.judge_claims(book)
        _write(folder, arms.book_html(book, judged), arms.book_json(book, judged), as_json)
        raise typer.Exit(0 if all(j.carried for j in judged) else NOT_CARRIED)
    plan = arms.read_plan(file)
    for sentence in (*plan.design.sentences(), *plan.design.warnings()):
        console.print(f"note: {sentence}", highlight=False)
    if dry_run:
        print_json({"order": plan.schedule(), "power": plan.design.table()})
        return
    result = _run(plan, folder, concurrency)
    _write(folder, arms.result_html(result), arms.result_json(result), as_json)
    raise typer.Exit(UNPROVEN if not result.proven else NOT_CARRIED if result.worse else 0)


def _run(plan: Any, folder: Path, concurrency: int) -> Any:
    """Ask everything that the folder's record file does not have yet."""
    from quaver.evaluate import compare as arms

    deciders = {url: options.load(url) for url in {arm.url for arm in plan.arms if arm.server == "local"}}
    try:
        servers = {
            arm.name: arms.LocalServer(deciders[arm.url], plan.endpoint)
            if arm.server == "local"
            else arms.connect(arm, plan.endpoint)
            for arm in plan.arms
        }
        with progress() as bar:
            task = bar.add_task("asking", total=None)
            book = arms.run(
                plan,
                servers,
                folder / "records.jsonl",
                concurrency=concurrency,
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    finally:
        for decider in deciders.values():
            decider.close()
    return arms.judge(plan, book)


def _write(folder: Path, page: str, report: dict[str, Any], as_json: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(page, encoding="utf-8")
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        print_json(report, indent=2)
        return
    for title, key in (("The data carry", "carried"), ("The data do not carry", "not_carried")):
        typer.echo(f"{title}:")
        for sentence in _sentences(report, key) or ["Nothing."]:
            typer.echo(f"  {sentence}")
    console.print(f"{folder / 'report.html'}", highlight=False)


def _sentences(report: dict[str, Any], key: str) -> list[str]:
    if "claims" not in report:
        return list(report[key])
    said = [f"{c['says']} ({c['verdict']}: {c['why']})" for c in report["claims"] if c["carried"] == (key == "carried")]
    return said + ([report["new_cases"]] if key == "not_carried" and report["new_cases"] else [])
