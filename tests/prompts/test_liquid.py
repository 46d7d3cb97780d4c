"""Prompts of Liquid's decision models by hand, in the chat of their shape (ChatML)."""

import pytest
from chat_models import rendered_ids, tokenizer, turn

from quaver.errors import BadQuestion, TooLong
from quaver.prompts.liquid import LiquidPrompt
from quaver.questions import Choice, Noul, Question, Request, Score

CASES: list[tuple[Question, str, list[list[str]]]] = [
    (Noul("Late?"), "Late?\n\nReply with yes or no only.", [["yes", "Yes", "YES"], ["no", "No", "NO"]]),
    (
        Noul("Late?", {"true": "after noon"}),
        "Late?\nYes: after noon\nNo: None\n\nReply with yes or no only.",
        [["yes", "Yes", "YES"], ["no", "No", "NO"]],
    ),
    (
        Choice("Which?", {"ask_again": None, "b": "bills"}),
        "Which?\n\nOptions:\nA ask again\nB bills\n\nReply with the option code only.",
        [["A", " A"], ["B", " B"]],
    ),
    (
        Choice("Which?", {"x": None, "Q": "the queen"}),
        "Which?\n\nOptions:\nx x\nQ the queen\n\nReply with the option code only.",
        [["x", " x"], ["Q", " Q"]],
    ),
    (
        Score("How?", ["bad", "fair", "good"]),
        "How?\n\n0 bad\n1 fair\n2 good\n\nReply with a single digit 0-2 only.",
        [["0"], ["1"], ["2"]],
    ),
]


def prompt(max_length: int = 8192) -> LiquidPrompt:
    return LiquidPrompt(tokenizer("smollm2"), turn("smollm2"), max_length)


@pytest.mark.parametrize(("question", "text", "ways"), CASES)
@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Ends so.", "Ends so.\n\n\nQUESTION:\n"),
        (None, ""),
        ("", ""),
        ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}\n\n\nQUESTION:\n'),
    ],
)
def test_prompts_by_hand(question: Question, text: str, ways: list[list[str]], state: object, said: str) -> None:
    [encoded] = prompt().encode(Request(state, {"q": question}))
    assert list(encoded.ids) == rendered_ids("smollm2", said + text)
    assert encoded.option_ids == question.option_ids
    single = [[ids for ids in tokenizer("smollm2").encode(row, "reference") if len(ids) == 1] for row in ways]
    assert encoded.labels.nodes[0].groups == tuple(tuple(ids[0] for ids in row) for row in single)
    assert encoded.labels.best_way_only
    assert encoded.labels.paths == tuple(((0, i),) for i in range(len(ways)))


def test_questions_share_the_state() -> None:
    first, second = prompt().encode(Request("A state of some length", {"a": CASES[0][0], "b": CASES[4][0]}))
    shared = min(first.state_end, second.state_end)
    assert shared > first.media_start and first.ids[:shared] == second.ids[:shared]


@pytest.mark.parametrize(
    ("criteria", "reason"),
    [
        ({"é": None, "漢": None}, "'漢' is not one distinct token"),
        ({"a": None, " a": None}, "not one distinct token"),
        ([f"o{i}" for i in range(27)], "27 options and this model has 26"),
    ],
)
def test_labels_it_has_no_token_for_are_refused(criteria: object, reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        prompt().encode(Request("s", {"q": Choice("?", criteria)}))  # type: ignore[arg-type]


def test_nothing_is_cut() -> None:
    with pytest.raises(TooLong, match="never cut"):
        prompt(50).encode(Request("word " * 60, {"q": Noul("?")}))
