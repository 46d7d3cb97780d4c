"""The documentation says what the program does."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("quaver/**/*.md"))]


def test_the_command_line_reference_is_the_help() -> None:
    script = runpy.run_path(str(ROOT / "scripts/reference.py"))
    assert script["PAGE"].read_text() == script["reference"](), "run scripts/docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
