"""The command against real servers: files, exit codes, resumption, and the page."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.testing import CliRunner

from quaver.cli.compare import compare

Serve = Callable[..., tuple[Any, str]]
app = typer.Typer()
app.command()(compare)


def plan_file(folder: Path, base: str, other: str, counts: int = 569) -> Path:
    cases = [
        {
            "id": f"c{i}",
            "body": {"messages": [{"role": "user", "content": f"{i}"}]},
            "checks": [{"at": "/seen", "is": 532}],
        }
        for i in range(7)
    ]
    small = {"model": "reader@560", "mm_processor_kwargs": {"max_soft_tokens": 560}}
    arms = {
        "stock": {
            "server": "vllm",
            "url": base,
            "request": {"model": "reader@base"},
            "proof": {"model": "reader@base"},
        },
        "560": {"server": "vllm", "url": other, "request": small, "proof": {"prompt_tokens": counts}},
    }
    plan = {
        "name": "<b>",
        "endpoint": "chat",
        "base": "stock",
        "parse": "json",
        "cases": cases,
        "arms": arms,
        "seeds": [1],
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    return folder / "plan.yaml"


def test_a_proven_comparison(serve: Serve, tmp_path: Path) -> None:
    (_, base), (engine, other) = serve(), serve(model="reader@560")
    arguments = [str(plan_file(tmp_path, base, other)), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["proven"] and report["carried"] and report["noise_band"] == 0
    finding = next(f for f in report["findings"] if f["metric"] == "passed")
    assert finding["p_mcnemar"] == 2 / 2**7 and finding["verdict"] == "shown, also for new cases"
    page = (tmp_path / "out/report.html").read_text()
    assert "&lt;b&gt;" in page and "<b>\n" not in page and not re.search(r"(src|href)=|<script", page)
    calls = engine.calls
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert engine.calls == calls + 4 * 7  # the canaries of a second session, and no run

    swapped = plan_file(tmp_path, base, other).read_text().replace("base: stock", "base: '560'")
    (tmp_path / "plan.yaml").write_text(swapped)
    assert CliRunner().invoke(app, [*arguments[:2], str(tmp_path / "swapped")]).exit_code == 4


def test_an_arm_without_proof(serve: Serve, tmp_path: Path) -> None:
    (_, base), (_, other) = serve(), serve(model="reader@560")
    done = CliRunner().invoke(app, [str(plan_file(tmp_path, base, other, counts=570)), "--out", str(tmp_path / "out")])
    assert done.exit_code == 3
    assert "Anything about 560: refused; prompt_tokens of case c0 is 569 and should be 570." in done.stdout
