"""The pages in a browser: whole, alone, and within a narrow window."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from quaver.evaluate.compare import (
    Arm,
    Case,
    HttpServer,
    Plan,
    book_html,
    judge,
    judge_claims,
    read_book,
    result_html,
    run,
)
from quaver.evaluate.compare.plan import TWIN, Check

BOOK = Path(__file__).parents[3] / "examples/compare/gemma-vision-loops.yaml"


@pytest.fixture
def page(serve: Callable[..., tuple[Any, str]], tmp_path: Path) -> str:
    """A result with a proven, a refused and a no-op arm."""
    (_, base), (_, other) = serve(), serve(model="reader@560")
    small = {"model": "reader@560", "mm_processor_kwargs": {"max_soft_tokens": 560}}
    stock = {"model": "reader@base"}
    arms = (
        Arm("stock", "vllm", base, stock, {"model": "reader@base"}),
        Arm("560", "vllm", other, small, {"model": "reader@560", "prompt_tokens": 569}),
        Arm("rounded", "vllm", other, small, {"model": "reader@560", "prompt_tokens": 570}),
        Arm("idle", "vllm", base, stock | {"knob": 1}, {"model": "reader@base"}),
        Arm("stock" + TWIN, "vllm", base, stock, {"model": "reader@base"}, twin=True),
    )
    cases = tuple(Case(f"c{i}", {"n": i}, (Check("is", 532, "/seen"),)) for i in range(5))
    plan = Plan("Image budget", "chat", arms, cases, (1,), "stock", "passed", parse="json")
    servers = {arm.name: HttpServer("vllm", arm.url, "chat") for arm in arms}
    return result_html(judge(plan, run(plan, servers, tmp_path / "r.jsonl")))


def show(browser: Chrome, tmp_path: Path, html: str, width: int) -> None:
    (tmp_path / "page.html").write_text(html)
    browser.set_window_size(width, 900)
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0  # type: ignore[no-untyped-call]
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")  # type: ignore[no-untyped-call]
    assert wide <= 0


@pytest.mark.parametrize("width", [1200, 520])
def test_the_page_of_a_run(browser: Chrome, tmp_path: Path, page: str, width: int) -> None:
    show(browser, tmp_path, page, width)
    assert browser.title == "Image budget"
    states = [element.text for element in browser.find_elements(By.CSS_SELECTOR, ".state")]
    assert states == ["proven", "proven", "refused", "no-op", "proven"]
    carried, not_carried, mind = browser.find_elements(By.CSS_SELECTOR, ".said")
    assert "560 has more replies that pass: 5/5 against 0/5 of stock" not in carried.text
    assert "the data cannot exclude" in not_carried.text and "Anything about rounded: refused" in not_carried.text
    assert "with 5 cases no two-sided p below 0.0625 exists" in mind.text
    proof = browser.find_elements(By.CSS_SELECTOR, "details")[2]
    assert "570" not in proof.text
    proof.find_element(By.TAG_NAME, "summary").click()
    assert "570" in proof.text and "569" in proof.text
    assert all(drawn.size["width"] > 50 for drawn in browser.find_elements(By.CSS_SELECTOR, "svg.interval"))


def test_the_page_of_a_book(browser: Chrome, tmp_path: Path) -> None:
    book = read_book(BOOK)
    show(browser, tmp_path, book_html(book, judge_claims(book)), 520)
    carried, not_carried, _ = (element.text for element in browser.find_elements(By.CSS_SELECTOR, ".said"))
    assert "1120 image tokens loop more than 560" in carried
    assert "no change only within -0.45 to +0.45" in not_carried and "None of this reaches other cases" in not_carried
    assert len(browser.find_elements(By.CSS_SELECTOR, "tr")) == 13
