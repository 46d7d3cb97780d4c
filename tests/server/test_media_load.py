"""The load benchmark in short: what is good is answered right while every tenth request is hostile."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks/media_load.py"


def test_hostile_requests_cost_only_themselves() -> None:
    command = [sys.executable, str(BENCHMARK), "--requests", "170", "--clients", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    # As many hostile ones as there are kinds.
    assert (facts["wrong"], facts["refused"], facts["answered"]) == ({}, 17, 153)
