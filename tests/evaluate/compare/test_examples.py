"""The plan of the guide and the example plans can be read, and the command says what they can show."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quaver.cli.compare import compare
from quaver.evaluate.compare import read_plan

ROOT = Path(__file__).parents[3]
app = typer.Typer()
app.command()(compare)


def test_the_plan_of_the_guide(tmp_path: Path) -> None:
    text = (ROOT / "docs/compare.md").read_text().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "plan.yaml").write_text(text)
    plan = read_plan(tmp_path / "plan.yaml")
    assert [arm.name for arm in plan.rivals] == ["560", "text only"]
    assert plan.stop is not None and plan.primary == "loop"


@pytest.mark.parametrize("name", ["two-deciders.yaml"])
def test_a_dry_run_asks_nothing_and_says_what_can_be_shown(name: str) -> None:
    done = CliRunner().invoke(app, [str(ROOT / "examples/compare" / name), "--dry-run"])
    assert done.exit_code == 0
    said = json.loads(done.stdout)
    assert len(said["order"]) == 36 and [row["from"] for row in said["power"]] == [0.4, 0.8]
    assert "12 runs per arm tell a rate of 80% from 20% below" in " ".join(done.stderr.split())
