"""Schemathesis against the served OpenAPI document: what it promises, and never a 5xx."""

import re
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def test_schemathesis_finds_nothing_in_two_thousand_cases(open_server, tmp_path: Path) -> None:
    """All checks but one: that every body the schema allows is answered, because a schema cannot say that an
    asset's placeholder stands in the text or that base64 holds an image."""
    # A time limit that a request sets for itself, and that is over, is answered 504.
    expected = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "504"]\n'
    (tmp_path / "schemathesis.toml").write_text(expected)
    command = [BIN / "schemathesis", "run", f"{open_server.url}/openapi.json", "--phases", "coverage,fuzzing"]
    checks = ["--checks", "all", "--exclude-checks", "positive_data_acceptance", "--continue-on-failure"]
    # A busy machine is no finding: neither slow drawing of data nor slow answers.
    patience = [
        "-n",
        "25",
        "--seed",
        "1",
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
        "--max-response-time",
        "60",
    ]
    done = subprocess.run([*command, *checks, *patience, "--no-color"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    found = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
    assert found, done.stdout
    generated, passed = (int(number.replace(",", "")) for number in found.groups())
    assert generated >= 2000
    assert passed == generated
