"""The field's own conformance suites against a real server process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(("fixture", "should"), [("open_server", 13), ("locked_server", 15)])
def test_jevcompat(fixture: str, should: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = request.getfixturevalue(fixture)
    report = tmp_path / "report.json"
    key = ["--key", server.key] if server.key else []
    done = subprocess.run(
        [BIN / "jevcompat", "test", server.url, *key, "--json", report], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    summary = json.loads(report.read_text())["summary"]
    assert summary["verdict"] == "conformant"
    assert (summary["MUST"]["passed"], summary["MUST"]["tested"]) == (32, 32)
    assert (summary["SHOULD"]["passed"], summary["SHOULD"]["tested"]) == (should, should)


def test_jevbench_check(open_server) -> None:
    url = f"{open_server.url}/v1/systemone"
    done = subprocess.run(
        [BIN / "jevbench", "check", "--url", url, "--model", "jev-latest"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check: OK" in done.stdout
