"""Prompts of Liquid's decision models by hand, in the chat of their shape (ChatML)."""

import json
import math
import string
from pathlib import Path

import pytest
from chat_models import folder, rendered_ids, tokenizer, turn

from quaver.errors import BadQuestion, BadRequest, TooLong
from quaver.prompts.liquid import LiquidPrompt
from quaver.prompts.tokenizer import PromptTokenizer
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


@pytest.mark.parametrize("state", [{1, 2}, math.nan, [b"x"]])
def test_a_state_that_is_no_json_is_a_bad_request(state: object) -> None:
    with pytest.raises(BadRequest, match="cannot be written as JSON"):
        prompt().encode(Request(state, {"q": Noul("?")}))


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
    assert encoded.labels.paths == tuple(((0, i),) for i in range(len(ways)))


def test_questions_share_the_state() -> None:
    first, second = prompt().encode(Request("A state of some length", {"a": CASES[0][0], "b": CASES[4][0]}))
    shared = min(first.state_end, second.state_end)
    assert shared > first.media_start and first.ids[:shared] == second.ids[:shared]


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        # Digits are tokens by themselves here, so "00" has none of its own and gives way to a letter.
        ([f"o{i}" for i in range(27)], [*string.ascii_uppercase, "a"]),
        (["\u00e9", "\u6f22"], ["\u00e9", "A"]),
        (["a", " a"], ["a", "A"]),
        (["b", "B", "\u6f22", "A"], ["b", "B", "A", "C"]),
    ],
)
def test_codes_without_a_token_give_way(options: list[str], codes: list[str]) -> None:
    [encoded] = prompt().encode(Request("s", {"q": Choice("?", dict.fromkeys(options))}))
    assert list(encoded.labels.labels) == codes
    written = "\n".join(f"{code} {option}" for code, option in zip(codes, options, strict=True))
    text = f"s\n\n\nQUESTION:\n?\n\nOptions:\n{written}\n\nReply with the option code only."
    assert list(encoded.ids) == rendered_ids("smollm2", text)
    first = [group[0] for group in encoded.labels.nodes[0].groups]
    assert [[token] for token in first] == tokenizer("smollm2").encode(codes, "reference")


def test_255_options_with_a_token_each() -> None:
    [encoded] = prompt().encode(Request("s", {"q": Choice("?", [f"o{i}" for i in range(255)])}))
    tokens = [token for group in encoded.labels.nodes[0].groups for token in group]
    assert len(encoded.labels.labels) == len(set(encoded.labels.labels)) == 255
    assert len(tokens) == len(set(tokens))


def test_a_model_without_codes_says_so(tmp_path: Path) -> None:
    """A tokenizer of letters and digits alone, as they are in the one of the other tests."""
    spec = json.loads((folder("smollm2") / "tokenizer.json").read_text())
    kept = {text: token for text, token in spec["model"]["vocab"].items() if len(text) == 1 or text in ("yes", "no")}
    spec["model"] |= {"vocab": kept, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    letters = LiquidPrompt(PromptTokenizer(tmp_path / "tokenizer.json"), turn("smollm2"), 100_000)
    with pytest.raises(BadQuestion, match="53 options and this model has 52 codes"):
        letters.encode(Request("s", {"q": Choice("?", [f"o{i}" for i in range(53)])}))
    with pytest.raises(BadQuestion, match="'yes' is not one distinct token"):
        letters.encode(Request("s", {"q": Noul("?")}))


def test_nothing_is_cut() -> None:
    with pytest.raises(TooLong, match="never cut"):
        prompt(50).encode(Request("word " * 60, {"q": Noul("?")}))
