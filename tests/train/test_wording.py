"""What the encoder is given to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

import quaver
from quaver.errors import BadRequest
from quaver.prompts.render import words
from quaver.prompts.split import SplitPrompt, option_texts
from quaver.questions import Choice, Noul, Question, Score

EMBEDDED = Path(quaver.__file__).parent / "embedded"


@pytest.fixture(scope="module")
def prompt() -> SplitPrompt:
    return SplitPrompt(Tokenizer.from_file(str(EMBEDDED / "tokenizer.json")))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Noul("Is it late?"), ["Is it late? yes", "no"]),
        (Noul("Late?", {"true": "after 8", "false": None}), ["Late? yes: after 8", "no"]),
        (Noul(None, {"false": {"hour": 7}}), ["yes", 'no: {"hour":7}']),
        (Choice("topic", ["a", "b"]), ["topic: a", "topic: b"]),
        (Choice("", {"a": "Apples", "bill": "Bills to pay"}), ["topic: Apples", "topic: Bills to pay"]),
        (Choice("", {"x1": "pears"}), ["topic: x1: pears"]),
        (Score("How bad?", ["low", 2]), ["How bad? level 1 of 2: low", "How bad? level 2 of 2: 2"]),
    ],
)
def test_options_are_worded_as_the_head_was_trained(question: Question, words: list[str]) -> None:
    assert option_texts(question) == words


def test_json_is_compact_with_sorted_keys_and_text_stays() -> None:
    assert words({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
    assert (words("as it is "), words(None), words(False)) == ("as it is ", "", "false")


def test_long_texts_go_into_windows_and_nothing_is_cut(prompt: SplitPrompt) -> None:
    words = " ".join(f"word{i}" for i in range(3000))
    windows = prompt.texts([words])[0]
    ids = [token for window in windows for token in window[1:-1]]
    assert ids == prompt.tokenizer.encode(words, add_special_tokens=False).ids
    assert max(map(len, windows)) == 256
    assert {(window[0], window[-1]) for window in windows} == {(prompt.start, prompt.end)}


def test_special_tokens_in_a_text_are_plain_text(prompt: SplitPrompt) -> None:
    (window,) = prompt.texts(["a [SEP] b [CLS] [MASK]"])[0]
    assert window.count(prompt.end) == window.count(prompt.start) == 1
    assert prompt.texts([""]) == [((prompt.start, prompt.end),)]


def test_half_a_surrogate_pair_is_refused(prompt: SplitPrompt) -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        prompt.encode("a\ud800", [Noul("Is it?")])


def test_tokens_counts_every_text(prompt: SplitPrompt) -> None:
    encoded = prompt.encode("one two", [Noul("three"), Choice("four", ["five"])])
    texts = prompt.texts(["one two", "three", "three yes", "no", "four", "topic: five"])
    assert encoded.tokens == sum(len(window) for text in texts for window in text)
    assert [question.type for question in encoded.questions] == [0, 1]
