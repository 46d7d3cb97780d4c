"""The investigation entered again: its claims are judged as its counts allow. And the pages."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quaver.cli.compare import compare
from quaver.errors import BadRequest
from quaver.evaluate.compare import book_html, judge_claims, read_book

ROOT = Path(__file__).parents[3]
BOOK = ROOT / "examples/compare/gemma-vision-loops.yaml"
EXPECTED = {
    "1120 image tokens loop more than 560": ("solid", 0.0004, 1.00),
    "1120 image tokens, all stock": ("solid", 0.0000, 1.00),
    "560 loops less than stock": ("solid", 0.0037, 1.00),
    "G, ": ("not shown", 1, 0.50),
    "L, a window": ("not shown", 0.33, 0.92),
    "L is worse": ("weak", 0.081, 0.99),
    "M, ": ("not shown", 1, 0.36),
    "J, ": ("no difference shown", 1, 0.70),
    "a grammar": ("no difference shown", 1, 0.43),
    "560 on vLLM": ("not shown", 0.24, 0.09),
    "an arm with 1": ("unresolved", 0.206, 0.97),
    "0 in 20": ("not comparable", 1, 0.15),
}
app = typer.Typer()
app.command()(compare)


@pytest.mark.parametrize("start", EXPECTED)
def test_the_claims_of_the_investigation(start: str) -> None:
    judged = next(j for j in judge_claims(read_book(BOOK)) if j.claim.says.startswith(start))
    verdict, p, posterior = EXPECTED[start]
    assert judged.verdict == verdict
    if verdict != "not comparable":
        assert judged.p == pytest.approx(p, abs=5e-3 if p > 0.01 else 6e-5)
        assert judged.posterior == pytest.approx(posterior, abs=6e-3)


def test_no_change_holds_only_within_wide_bounds() -> None:
    words = {j.claim.says[:2]: j.words for j in judge_claims(read_book(BOOK))}
    assert "-0.45 to +0.45" in words["G,"] and "-0.44 to +0.37" in words["M,"]


def test_five_cases_reach_no_others_and_the_best_of_thirteen_is_luck() -> None:
    book = read_book(BOOK)
    assert "with 5 cases no two-sided p below 0.0625 exists" in book.new_cases
    assert book.luck[0].chance == pytest.approx(0.48, abs=0.01)


def test_the_command_judges_a_book(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(BOOK), "--out", str(tmp_path), "--json"])
    assert done.exit_code == 4
    report = json.loads(done.stdout)
    assert sum(claim["carried"] for claim in report["claims"]) == 5
    assert json.loads((tmp_path / "report.json").read_text()) == report
    spoken = CliRunner().invoke(app, [str(BOOK), "--out", str(tmp_path)])
    assert "The data do not carry:\n  G, bidirectional attention" in spoken.stdout


def test_the_page_stands_alone_and_escapes(tmp_path: Path) -> None:
    text = BOOK.read_text().replace("a grammar shows", "a <script>alert(1)</script> shows")
    (tmp_path / "book.yaml").write_text(text)
    book = read_book(tmp_path / "book.yaml")
    page = book_html(book, judge_claims(book))
    assert "<script" not in page and not re.search(r"(src|href)=", page) and "url(" not in page
    HTMLParser().feed(page)
    assert page.index("The data carry") < page.index("The data do not carry") < page.index("Claim by claim")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("kind: same", "kind: equal", "kind must be one of differs, same, noise"),
        ("events: 4, of: 5}", "events: 6, of: 5}", "6 events in 5 runs cannot be"),
        ("cases: 5", "cases: many", "cases must be of type int"),
    ],
)
def test_a_book_that_is_wrong(tmp_path: Path, before: str, after: str, message: str) -> None:
    (tmp_path / "book.yaml").write_text(BOOK.read_text().replace(before, after, 1))
    with pytest.raises(BadRequest, match=message):
        read_book(tmp_path / "book.yaml")
