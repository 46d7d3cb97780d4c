"""Writes docs/cli.md: the commands' own help, as typer renders it."""

import html
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs/cli.md"


def reference() -> str:
    """The page as it should be."""
    command = [sys.executable, "-m", "typer", "quaver.cli.main", "utils", "docs", "--name", "quaver"]
    done = subprocess.run([*command, "--title", "Command line"], check=True, capture_output=True, text=True)
    return html.unescape(done.stdout).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(reference())
