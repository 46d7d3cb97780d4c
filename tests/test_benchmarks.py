"""The engine's benchmarks run from end to end; what a short run measures means nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parent.parent / "benchmarks/engine.py"


def test_every_row_of_the_engine_benchmarks_runs_and_its_answers_agree() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--tiny", "--dtype", "float32"], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    checks = result["checks"]
    assert [check["row"] for check in checks] == [*"aabccdeffffgg"]
    assert all(check["figures"] and math.isfinite(check["ratio"]) for check in checks)
    # The reference rounds its answers to four decimals.
    assert all(check.get("difference", 0.0) <= 1e-4 for check in checks)
    error = checks[-1]
    assert error["ratio"] <= 2e-5
    soak = checks[-2]
    assert soak["failed"] == 0 and soak["requests"] >= 100
