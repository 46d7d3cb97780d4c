"""Reports: gates on the interval's end, strict JSON, JUnit, and a page that a browser shows whole and alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from selenium.webdriver import Chrome

from quaver.errors import BadRequest
from quaver.evaluate.coherence import variants
from quaver.evaluate.records import Record
from quaver.evaluate.report.gates import judge, junit, parse_gates
from quaver.evaluate.report.page import page
from quaver.evaluate.report.summary import Summary, summarise

Records = Callable[[int], list[Record]]


@pytest.fixture(scope="module")
def summary(records: Records, fake: Any, ask: Any) -> Summary:
    asked = records(60)
    decider = fake(skill=1.6, boast=2.5)
    decider.before = lambda call: BadRequest("<b>no</b>") if call == 7 else None
    return summarise(*ask([*asked, *variants(asked[:10])], decider))


def test_gates_judge_the_unfavourable_end(summary: Summary) -> None:
    accuracy = summary.groups[0].metrics[0]
    just_below, just_above = accuracy.low - 1e-6, accuracy.low + 1e-6
    gates = parse_gates(
        [
            f"accuracy={just_below}",
            f"accuracy={just_above}",
            "noul:auroc=0.5",
            "nothing=1",
            "queue:brier=0",
            "no such group:accuracy=0",
        ],
        [f"ece={summary.groups[0].metrics[5].high}", "choice:brier=0.01"],
    )
    verdicts = judge(gates, summary)
    assert [v.passed for v in verdicts] == [True, False, True, False, True, False, True, False]
    assert accuracy.value > just_above
    assert "has no such metric; it has accuracy, balanced_accuracy" in verdicts[3].words
    assert "the groups all, choice, noul, score" in verdicts[5].words


@pytest.mark.parametrize("text", ["accuracy", "accuracy=", "accuracy=high", "=0.5", "accuracy=1..2"])
def test_gates_that_are_none(text: str) -> None:
    with pytest.raises(BadRequest, match="does not have the form"):
        parse_gates([text], [])


def test_junit(summary: Summary) -> None:
    suite = ElementTree.fromstring(junit(judge(parse_gates(["accuracy=0.1", "accuracy=1"], []), summary), summary))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["accuracy >= 1", "every record was answered"]


def test_json_is_strict_and_complete(summary: Summary) -> None:
    text = json.dumps(summary.to_json(), allow_nan=False)
    found = json.loads(text)
    assert set(found["metrics"]) == {"all", "noul", "choice", "score"}
    assert found["metrics"]["all"]["accuracy"]["n"] == 180
    assert found["models"] == ["fake-1"] and found["errors"] == {"BadRequest: <b>no</b>": 1}
    assert {row["relation"] for row in found["coherence"]} == {
        "negation", "option_order", "paraphrase", "irrelevant_option", "batch",
    }  # fmt: skip


def test_warnings_name_what_makes_numbers_doubtful(records: Records, fake: Any, ask: Any, summary: Summary) -> None:
    assert summary.warnings == ("3 of 180 labelled questions got no answer and count as wrong.",)
    dull = fake()
    dull.bend = lambda _, p: [1 / len(p)] * len(p)
    found = summarise(*ask(records(25), dull)).warnings
    assert found[0] == "75 of 75 answers are uniform: the model says nothing about them."
    assert found[1] == "Question refund got the same probabilities in all 25 records."


def test_the_page_escapes_what_it_quotes(summary: Summary) -> None:
    html = page(summary)
    assert "<b>no</b>" not in html and "&lt;b&gt;no&lt;/b&gt;" in html


def test_the_page_in_a_browser(summary: Summary, tmp_path: Path, browser: Chrome) -> None:
    gates = judge(parse_gates(["accuracy=0.1", "accuracy=1"], []), summary)
    (tmp_path / "report.html").write_text(page(summary, gates))
    for width in (500, 1200):
        browser.set_window_size(width, 900)
        browser.get(f"file://{tmp_path / 'report.html'}")
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    widths = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert len(widths) == 7 and min(widths) > 200
    for details in browser.find_elements("css selector", "details"):
        details.find_element("tag name", "summary").click()
        assert "auroc" in details.text or "brier" in details.text
        assert details.find_element("tag name", "svg").size["width"] > 100
    verdicts = browser.find_elements("css selector", "td.pass, td.fail")
    assert [verdict.text for verdict in verdicts] == ["passed", "failed"]
    assert browser.get_log("browser") == []
