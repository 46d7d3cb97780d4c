"""``benchmarks/label_reads.py`` measures what a decider answers, goes on where it stopped, tells what was not run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from chat_release import chat_release

import quaver
from quaver.models.release import inspect
from quaver.questions import LabelRule, Request
from quaver.train.tasks import Item, Task

ROOT = Path(__file__).parents[2]
STATE = "The parcel came late and the box was torn."
#: Neither in the order in which prompts write them nor as many as there are orders.
TEAMS = ("tech", "billing", "delivery", "zoo", "art")
NOT_READ = Task("other", "auc", quaver.Noul("Is it late?"), [Item(STATE, (1.0, 0.0))])
TASK = Task(
    "teams",
    "accuracy",
    quaver.Choice("Which team?", dict.fromkeys(TEAMS)),
    [Item(STATE, (0.0, 0.0, 1.0, 0.0, 0.0)), Item("My screen is black.", (1.0, 0.0, 0.0, 0.0, 0.0))],
)


@pytest.fixture(scope="module")
def program() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield {**vars(import_module("label_tables")), **vars(import_module("label_reads"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_release(tmp_path_factory.mktemp("releases") / "tiny-chat")


@pytest.fixture
def file(program: dict[str, Any], folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "reads" / "tiny-chat.jsonl"
    program["collect"](folder, file, [TASK], {"words": 9, "dtype": "float32"}, math.inf)
    return file


def test_every_correction_is_the_deciders(program: dict[str, Any], folder: Path, file: Path) -> None:
    _, reads = program["load"](file)
    with quaver.load(str(folder)) as decider:
        for _, with_prior, count in program["CORRECTIONS"]:
            rule = LabelRule(prior_correction=with_prior, orders=count)
            answers = decider.submit(Request(STATE, {"q": TASK.question}, labels=rule)).result()
            prior = reads["teams", program["PRIOR"]] if with_prior else None
            found = program["corrected"](TASK, reads["teams", 0], prior, count)
            assert dict(zip(TEAMS, found.probabilities, strict=True)) == pytest.approx(
                answers["q"].probabilities, abs=2e-5
            )
            if count > 1:
                assert answers.labels is not None
                assert max(found.spread) == pytest.approx(answers.labels["q"].order_spread, abs=2e-5)


def test_a_stopped_run_goes_on(program: dict[str, Any], folder: Path, file: Path) -> None:
    settings, whole = program["load"](file)
    assert settings == {"model": inspect(folder).name, "words": 9, "dtype": "float32"}
    assert list(whole) == [("teams", program["PRIOR"]), ("teams", 0), ("teams", 1)]
    file.write_text(file.read_text()[:-40])
    assert ("teams", 1) not in program["load"](file)[1]
    program["collect"](folder, file, [TASK], {"words": 9, "dtype": "float32"}, math.inf)
    again = program["load"](file)[1]
    assert list(again) == list(whole)
    for key, reads in again.items():
        for read, before in zip(reads, whole[key], strict=True):
            assert read.log_probabilities == pytest.approx(before.log_probabilities, abs=1e-4)
    with pytest.raises(ValueError, match=r"was begun with .*name another folder"):
        program["collect"](folder, file, [TASK], {"words": 8, "dtype": "float32"}, math.inf)


def test_the_table_says_what_was_not_run(program: dict[str, Any], file: Path) -> None:
    lines = program["table"]([TASK, NOT_READ], file).splitlines()
    assert [line for line in lines if "not run" in line] == [lines[-1]]
    assert lines[-1].startswith("| other; 0 of 1 items | not run |")
    rows = [line.split(" | ") for line in lines if " orders" in line or " none " in line]
    assert len(rows) == 5 and rows[0][0] == "| teams; n = 2, commonest label 0.50"
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_the_page_has_a_place_for_the_tables(program: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs/label-reads.md").read_text())
    for tables in ("| one |", "| another |"):
        program["write"](page, tables)
    text = page.read_text()
    assert "\n| another |\n" in text and "| one |" not in text
    assert text.startswith("# Label reads\n") and "\n## The softcap\n" in text
    page.write_text("# Another page\n")
    with pytest.raises(ValueError, match="has no place for tables"):
        program["write"](page, "| one |")
