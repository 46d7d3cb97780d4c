"""Rules of the question types, and that what is given is kept as given."""

import copy
import pickle
import re
from typing import Any

import pytest

from quaver import Choice, Noul, Score
from quaver.errors import BadQuestion
from quaver.questions import Request

STRUCTURED = {"covers": ["bugs", {"severity": 1.0}], "not": None}


def test_structured_text_is_kept() -> None:
    assert Noul(STRUCTURED, {"true": STRUCTURED}).criteria == {"true": STRUCTURED}
    assert Choice(STRUCTURED, {"a": STRUCTURED, "b": None}).criteria["a"] is STRUCTURED
    assert Score(STRUCTURED, [STRUCTURED, "high", None]).criteria == (STRUCTURED, "high", None)


def test_options_keep_request_order() -> None:
    assert Choice("?", {"z": None, "a": None, "é": None}).option_ids == ("z", "a", "é")
    assert Choice("?", ["z", "a"]).option_ids == ("z", "a")
    assert Score("?", ["x"] * 10).option_ids == tuple("0123456789")
    assert Noul("?").option_ids == ("true", "false")


@pytest.mark.parametrize("question", [Noul("?", {"true": "t"}), Choice("?", {"a": STRUCTURED}), Score("?", ["x"])])
def test_questions_can_be_copied_and_sent_to_other_processes(question: Any) -> None:
    assert copy.deepcopy(question) == pickle.loads(pickle.dumps(question)) == question


@pytest.mark.parametrize("count", [1, 2, 255])
def test_option_counts_within_limits(count: int) -> None:
    assert len(Choice("?", {str(i): None for i in range(count)}).option_ids) == count


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice("?", {}), "choice needs 1 to 255 options, got 0"),
        (lambda: Choice("?", {str(i): None for i in range(256)}), "choice needs 1 to 255 options, got 256"),
        (lambda: Choice("?", ["a", "b", "a"]), "choice option 'a' appears twice"),
        (lambda: Choice("?", ["a", True]), "choice options must be text, got True"),
        (lambda: Choice("?", {1: "one", "1": "uno"}), "choice options must differ as text, got [1, '1']"),
        (lambda: Choice("?", "ab"), "choice criteria must be an object of option to description, got text"),
        (lambda: Score("?", []), "score needs 1 to 10 levels, got 0"),
        (lambda: Score("?", ["x"] * 11), "score needs 1 to 10 levels, got 11"),
        (lambda: Score("?", {"0": "low"}), "score criteria must be a list of levels, lowest first, got an object"),
        (lambda: Noul("?", ["yes"]), "noul criteria must be an object with true and false, got a list"),
        (lambda: Request("state", {}), "at least one question is required"),
    ],
)
def test_broken_rules_are_named(make: Any, message: str) -> None:
    with pytest.raises(BadQuestion, match=re.escape(message)):
        make()
