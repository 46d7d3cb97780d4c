"""The validation of ten inputs a release with our own engine; ``benchmarks/validation.py`` does vLLM's too."""

import json
import subprocess
import sys
from pathlib import Path

VALIDATION = Path(__file__).parents[2] / "benchmarks/validation.py"


def test_ten_inputs_of_each_release_alone_and_in_company() -> None:
    command = [sys.executable, VALIDATION, "--engine", "quaver", "--dtype", "float32"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [row["release"] for row in rows] == ["clef-flash-tiny", "clef-omni-tiny"]
    for row in rows:
        assert row["same"]["agreed"] == row["same"]["questions"] == 90
        assert row["same"]["difference"] <= 5e-5
