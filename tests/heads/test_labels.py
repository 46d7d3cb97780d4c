"""Label reads against softmax in float64 and against a model's own probabilities of whole sequences."""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from quaver.errors import EngineFault
from quaver.heads.labels import join, read_labels
from quaver.heads.softcap import softcap
from quaver.prompts.label_schemes import whole_labels

GENERATOR = torch.Generator().manual_seed(5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cap", [None, 30.0])
def test_equals_a_softmax_over_the_whole_vocabulary(dtype: torch.dtype, cap: float | None) -> None:
    logits = (torch.randn(3, 5000, generator=GENERATOR) * 8).to(dtype)
    labels = [[[7], [9]], [[1, 2, 3], [4], [5, 6]], [[4999, 0]]]
    wide = logits.float() if cap is None else softcap(logits.float(), cap)
    whole = torch.softmax(wide.double(), -1)
    for row, groups, read in zip(whole, labels, read_labels(logits, labels, cap), strict=True):
        held = [row[group].sum().item() for group in groups]
        assert read.label_mass == pytest.approx(sum(held), rel=1e-12)
        assert read.probabilities == pytest.approx([p / sum(held) for p in held], rel=1e-12)
        assert [math.exp(value) for value in read.log_probabilities] == pytest.approx(held, rel=1e-12)
        assert math.fsum(read.probabilities) == pytest.approx(1, abs=1e-15)


def test_the_cap_in_float32_keeps_apart_what_bfloat16_ties() -> None:
    logits = torch.tensor([[40.0, 40.25, 0.0]], dtype=torch.bfloat16)
    in_half = torch.tanh(logits / 30) * 30
    assert in_half[0, 0] == in_half[0, 1]
    [read] = read_labels(logits, [[[0], [1]]], cap=30.0)
    assert read.tied == ()
    assert read.probabilities[1] > read.probabilities[0]


def test_the_likeliest_way_alone_counts_when_asked_and_the_mass_counts_all() -> None:
    logits = torch.log(torch.tensor([[0.3, 0.2, 0.4, 0.1]]))
    summed, best = (read_labels(logits, [[[0, 1], [2]]], best_way_only=way)[0] for way in (False, True))
    assert summed.probabilities == pytest.approx([5 / 9, 4 / 9], rel=1e-6)
    assert best.probabilities == pytest.approx([3 / 7, 4 / 7], rel=1e-6)
    assert summed.label_mass == best.label_mass == pytest.approx(0.9, rel=1e-6)


def test_labels_that_are_all_of_a_vocabulary_hold_no_more_than_all_of_it() -> None:
    reads = read_labels(torch.randn(200, 7, generator=GENERATOR), [[[token] for token in range(7)]] * 200)
    assert max(read.label_mass for read in reads) <= 1
    assert min(read.label_mass for read in reads) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "argmax_is_label", "tied"),
    [
        ([1.0, 2.0, 0.0], True, ()),
        ([1.0, 2.0, 3.0], False, ()),
        ([2.0, 2.0, 0.0], True, (0, 1)),
        ([2.0, 2.0, 2.0], True, (0, 1)),  # no other token is likelier than a label
        ([2.0, 2.0, 5.0], False, (0, 1)),
    ],
)
def test_ties_and_strangers_are_told(logits: list[float], argmax_is_label: bool, tied: tuple[int, ...]) -> None:
    [read] = read_labels(torch.tensor([logits]), [[[0], [1]]])
    assert (read.argmax_is_label, read.tied) == (argmax_is_label, tied)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(EngineFault, match=r"rows \[1\]"):
        read_labels(torch.tensor([[0.0, 1.0], [0.0, bad]]), [[[0]], [[0]]])


def test_rows_do_not_depend_on_their_neighbours() -> None:
    logits = torch.randn(4, 100, generator=GENERATOR)
    labels = [[[i], [i + 1, 50]] for i in range(4)]
    together = read_labels(logits, labels)
    assert together == [read_labels(logits[i : i + 1], labels[i : i + 1])[0] for i in range(4)]


LABELS = [(3, 4), (3, 5), (3, 6, 7), (3, 6, 8), (9,), (10, 4), (10, 5)]


def test_long_labels_have_the_models_own_sequence_probabilities() -> None:
    """Every token of these labels is at a place where some differ, so the product is the whole sequence's."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config).eval()
    prompt = [1, 2, 17, 30]

    def next_logits(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -1]

    tree = whole_labels([str(label) for label in LABELS], LABELS)
    logits = torch.stack([next_logits([*prompt, *node.prefix]) for node in tree.nodes])
    read = join(read_labels(logits, [node.groups for node in tree.nodes]), tree.paths)

    for label, ours in zip(LABELS, read.log_probabilities, strict=True):
        with torch.no_grad():
            logs = torch.log_softmax(model(torch.tensor([[*prompt, *label]])).logits[0].double(), -1)
        whole = sum(logs[len(prompt) - 1 + i, token].item() for i, token in enumerate(label))
        assert ours == pytest.approx(whole, abs=1e-5)
    assert read.label_mass == pytest.approx(sum(map(math.exp, read.log_probabilities)))
    assert sum(read.probabilities) == pytest.approx(1)


def test_a_token_that_all_labels_share_counts_as_certain() -> None:
    tree = whole_labels(["_0", "_1"], [(20, 0), (20, 1)])
    assert [node.prefix for node in tree.nodes] == [(20,)]
    assert tree.paths == (((0, 0),), ((0, 1),))


@pytest.mark.parametrize("best_way_only", [False, True])
def test_join_of_one_read_is_that_read(best_way_only: bool) -> None:
    logits = torch.randn(1, 10, generator=GENERATOR)
    [read] = read_labels(logits, [[[1, 3], [2]]], best_way_only=best_way_only)
    assert join([read], [[(0, 0)], [(0, 1)]]) == read
