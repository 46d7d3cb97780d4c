"""Targets say what the raters said, and labels stay with their texts."""

from __future__ import annotations

import random

import pytest

from quaver.questions import Choice, Noul
from quaver.train import pairs, records, sentiment
from quaver.train.pairs import Family
from quaver.train.sources import Mail, Pair, Rated, part_of
from quaver.train.templates import expand


def test_parts_follow_the_last_digit() -> None:
    assert [part_of(n) for n in (7, 1207, 3, 40, 8)] == ["test", "test", "calibration", "train", "train"]


@pytest.mark.parametrize("size", sorted(sentiment.SCALES))
def test_levels_are_shares_and_rise_with_the_ratings(size: int) -> None:
    assert sentiment.levels_of([-4] * 3, size) == (1.0, *[0.0] * (size - 1))
    assert sentiment.levels_of([4], size)[-1] == 1.0
    mixed = sentiment.levels_of([-2, 0, 0, 3, 1], size)
    assert sum(mixed) == pytest.approx(1)
    assert all(len(levels) == size for levels in sentiment.LEVELS[size])


def test_zero_counts_half_where_there_is_no_middle() -> None:
    assert sentiment.levels_of([0, 0], 4) == (0.0, 0.5, 0.5, 0.0)
    assert sentiment.levels_of([0, 0], 5) == (0.0, 0.0, 1.0, 0.0, 0.0)


def test_opposite_wordings_get_opposite_targets() -> None:
    seen = {}
    for seed in range(300):
        question, target = sentiment.noul(random.Random(seed))
        wording = str(question.instructions)
        seen[wording] = target([3, 2, 4])[0] > 0.5
    assert all(glad is ("not" in wording) for wording, glad in seen.items() if "unhappy" in wording)
    assert seen["positive"] and not seen["negative"] and not seen["not positive"] and seen["not negative"]


def test_choices_hold_the_right_label_once() -> None:
    family = Family("letters", [Pair(f"text {c}", c, "train") for c in "abcdefgh"])
    for example in pairs.batch(family, 8, random.Random(1)):
        letter = str(example.state)[-1]
        if isinstance(example.question, Choice):
            assert example.question.option_ids[example.target.index(1.0)] == letter
            assert sum(example.target) == 1


def test_spam_batches_are_balanced_and_negated_wordings_are_negated() -> None:
    mails = [Mail("s", f"body {spam} {i}", spam, "train") for i in range(20) for spam in (True, False)]
    examples = [e for seed in range(40) for e in pairs.spam_batch(mails, 8, random.Random(seed))]
    nouls = [e for e in examples if isinstance(e.question, Noul)]
    for example in nouls:
        is_spam, asks_for_spam = "true" in str(example.state).lower(), example.question.instructions in pairs.SPAM
        assert (example.target[0] == 1) == (is_spam == asks_for_spam)


def test_records_hold_their_answers() -> None:
    for seed in range(50):
        for example in records.batch(4, random.Random(seed)):
            if isinstance(example.question, Choice):
                assert example.question.option_ids[example.target.index(1.0)] in str(example.state)


def test_rated_batches_ask_each_sentence_twice() -> None:
    items = {"tweets": [Rated("tweets", f"t{i}", (1, 2, 3), "train") for i in range(9)]}
    examples = sentiment.batch(items, {"tweets": 5}, random.Random(0))
    assert [e.family for e in examples] == ["sentiment-noul", "sentiment-graded"] * 5


def test_templates_expand_to_plain_sentences() -> None:
    rules = {"turn": "(turn|switch)", "the": "(the|my)"}
    sentences = {expand("<turn> on [<the>] {name} [(now;please)]", rules, random.Random(i)) for i in range(60)}
    assert len(sentences) > 10
    assert not any(mark in sentence for sentence in sentences for mark in "<>{}[]()|;")
