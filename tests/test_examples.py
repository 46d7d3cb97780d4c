"""The examples and the README's Python run as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("script", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_examples_run(script: Path) -> None:
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


@pytest.mark.parametrize("block", README_BLOCKS)
def test_readme_blocks_run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_the_batch_example_runs_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    command = [sys.executable, "-m", "quaver", "ask", "--batch", "tickets.jsonl", "--questions", "questions.yaml"]
    for _ in range(2):
        subprocess.run([*command, "--out", out], cwd=ROOT / "examples", check=True, capture_output=True)
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert [record["line"] for record in records] == [1, 2, 3]
        assert all(set(record["reply"]["answers"]) == {"refund", "team", "anger"} for record in records)
