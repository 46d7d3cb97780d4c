"""Labels proved against transformers' own ids of prompt and reply, and labels of several tokens."""

import itertools
from functools import cache

import pytest
from chat_models import RELEASES, rendered, rendered_ids, tokenizer, turn
from tokenizers import AddedToken, Tokenizer, models, normalizers

from quaver.errors import BadRelease
from quaver.prompts.label_encoded import LabelSet
from quaver.prompts.label_schemes import LabelSchemes, whole_labels
from quaver.prompts.tokenizer import PromptTokenizer

CASES = [
    ("noul", 2),
    ("score", 1),
    ("score", 5),
    ("score", 10),
    ("choice", 1),
    ("choice", 26),
    ("choice", 27),
    ("choice", 255),
]


@cache
def schemes(name: str) -> LabelSchemes:
    return LabelSchemes(tokenizer(name), turn(name).tail)


@pytest.mark.parametrize("name", RELEASES)
def test_every_label_is_one_token_that_the_reply_begins_with(name: str) -> None:
    """Encoding the whole conversation with the reply in it gives the prompt and exactly the label's token."""
    prompt, text = rendered_ids(name, "x"), rendered(name, "x")
    known, both = schemes(name), tokenizer(name)
    for case in CASES:
        _, found = known.labels_of(*case)
        [node] = found.nodes
        replies = both.encode([text + label for label in found.labels], "reference")
        assert replies == [[*prompt, group[0]] for group in node.groups]
        ids = list(itertools.chain(*node.groups))
        assert len(set(ids)) == len(ids), "no token may stand for two labels"
        assert len(found.labels) == case[1]


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize(
    ("case", "labels"),
    [(("noul", 2), "yes no"), (("score", 3), "0 1 2"), (("choice", 3), "A B C")],
)
def test_the_natural_label_comes_first(name: str, case: tuple[str, int], labels: str) -> None:
    assert schemes(name).labels_of(*case)[1].labels == tuple(labels.split())


@pytest.mark.parametrize("name", RELEASES)
def test_surface_variants_are_the_same_word(name: str) -> None:
    known, both = schemes(name), tokenizer(name)
    groups = known.labels_of("noul", 2)[1].nodes[0].groups
    end = list(both.fixed(turn(name).tail))
    for word, group in zip(("yes", "no"), groups, strict=True):
        ways = [word, word.capitalize(), word.upper(), f" {word}", f" {word.capitalize()}", f" {word.upper()}"]
        expected = [ids[len(end) :] for ids in both.encode([turn(name).tail + way for way in ways], "reference")]
        assert [list(group)[i : i + 1] for i in range(len(group))] == [ids for ids in expected if len(ids) == 1]
        assert len(group) >= 3


def made(tmp_path_factory: pytest.TempPathFactory, words: str, merges: list[tuple[str, str]]) -> PromptTokenizer:
    """A tokenizer of single characters and the merges given, with one control token."""
    vocabulary = {token: i for i, token in enumerate([*words, *(a + b for a, b in merges)])}
    small = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    small.normalizer = normalizers.NFC()
    small.add_special_tokens([AddedToken("<reply>", normalized=False)])
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    small.save(str(file))
    return PromptTokenizer(file)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = "abcdefghijklmnopqrstuvwxyz0123456789 :"


def spell(found: LabelSet, label: int) -> list[int]:
    """The tokens that the path of a label passes, with the prefix that leads to its last place."""
    node, group = found.paths[label][-1]
    return [*found.nodes[node].prefix, *found.nodes[node].groups[group]]


def test_where_no_scheme_has_single_tokens_labels_are_read_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    known = made(tmp_path_factory, LETTERS + LOWER, [])
    schemes = LabelSchemes(known, "<reply>")
    scheme, noul = schemes.labels_of("noul", 2)
    assert (scheme.noun, noul.labels) == ("the letter", ("A", "B")), "yes has no token of its own, letters have"
    scheme, many = schemes.labels_of("choice", 40)
    assert (many.labels[0], many.labels[39], scheme.noun) == ("AA", "BN", "the two letters")
    for i, label in enumerate(many.labels):
        assert spell(many, i) == list(known.fixed(label))
    assert [node.prefix for node in many.nodes] == [(), *((token,) for token in known.fixed("AB"))]


def test_a_token_that_could_mean_two_labels_counts_for_neither(tmp_path_factory: pytest.TempPathFactory) -> None:
    folding = made(tmp_path_factory, LETTERS + LOWER, [("y", "e"), ("ye", "s"), ("n", "o")])
    _, noul = LabelSchemes(folding, "<reply>").labels_of("noul", 2)
    assert (noul.labels, [len(group) for group in noul.nodes[0].groups]) == (("yes", "no"), [1, 1])


def test_labels_that_merge_with_the_prompt_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    merging = made(tmp_path_factory, LETTERS + LOWER, [(":", "y"), (":", "A")])
    with pytest.raises(BadRelease, match="merges the label"):
        LabelSchemes(merging, "<reply>:")


def test_a_way_to_write_a_label_that_merges_with_the_prompt_is_left_out(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    merging = made(tmp_path_factory, LETTERS + LOWER, [(":", " "), ("y", "e"), ("ye", "s"), ("n", "o")])
    _, noul = LabelSchemes(merging, "<reply>:").labels_of("noul", 2)
    assert noul.nodes[0].groups == tuple(merging.fixed(f"<reply>:{label}")[2:] for label in ("yes", "no"))


@pytest.mark.parametrize(
    ("replies", "prefixes"),
    [
        ([(1,), (2,)], [()]),
        ([(9, 1), (9, 2)], [(9,)]),
        ([(1, 5, 6), (1, 5, 7), (2, 5)], [(), (1, 5)]),
        ([(1, 1), (1, 2), (2, 1), (2, 2)], [(), (1,), (2,)]),
        ([(4, 5, 6)], [(4, 5)]),
    ],
)
def test_whole_labels_are_read_only_where_they_differ(
    replies: list[tuple[int, ...]], prefixes: list[tuple[int, ...]]
) -> None:
    found = whole_labels([str(ids) for ids in replies], replies)
    assert [node.prefix for node in found.nodes] == prefixes
    for i, ids in enumerate(replies):
        for node, group in found.paths[i]:
            place = len(found.nodes[node].prefix)
            assert ids[:place] == found.nodes[node].prefix
            assert ids[place] == found.nodes[node].groups[group][0]
    assert len(set(found.paths)) == len(replies)


@pytest.mark.parametrize("replies", [[(1,), (1, 2)], [(1, 2), (1, 2)]])
def test_labels_that_no_place_tells_apart_are_refused(replies: list[tuple[int, ...]]) -> None:
    with pytest.raises(BadRelease, match="cannot be told apart"):
        whole_labels(["first", "second"], replies)


def test_labels_can_be_put_into_another_order() -> None:
    found = whole_labels(["yes", "no", "maybe"], [(1,), (2,), (3,)]).ordered([2, 0, 1])
    assert found.labels == ("maybe", "yes", "no")
    assert found.paths == (((0, 2),), ((0, 0),), ((0, 1),))
