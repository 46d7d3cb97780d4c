"""Prior subtraction and order averaging on models whose bias is known."""

import math

import pytest

from quaver.heads.label_bias import average_orders, cyclic_orders, subtract_prior


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def test_a_bias_on_labels_is_taken_out() -> None:
    """A model that adds a constant to each label's logit, whatever it reads."""
    evidence, bias = [0.3, -1.2, 0.9], [2.0, 0.0, -1.0]
    biased = [e + b for e, b in zip(evidence, bias, strict=True)]
    assert subtract_prior(biased, bias) == pytest.approx(softmax(evidence))
    assert subtract_prior(bias, bias) == pytest.approx([1 / 3] * 3)


def test_constants_change_nothing() -> None:
    logs, prior = [-3.0, -0.1], [-5.0, -4.0]
    assert subtract_prior([x - 7 for x in logs], [x + 11 for x in prior]) == pytest.approx(subtract_prior(logs, prior))


def test_a_prior_of_another_question_or_without_a_label_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        subtract_prior([0.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="some probability"):
        subtract_prior([0.0, 1.0], [0.0, -math.inf])


@pytest.mark.parametrize("options", [1, 2, 5, 26])
def test_all_rotations_put_every_option_in_every_place_once(options: int) -> None:
    orders = cyclic_orders(options, options)
    assert orders[0] == tuple(range(options))
    assert all(sorted(column) == list(range(options)) for column in zip(*orders, strict=True))


@pytest.mark.parametrize(
    ("options", "count", "firsts"), [(8, 4, [0, 2, 4, 6]), (5, 2, [0, 2]), (3, 9, [0, 1, 2]), (4, 0, [0])]
)
def test_fewer_rotations_lie_evenly_apart(options: int, count: int, firsts: list[int]) -> None:
    assert [order[0] for order in cyclic_orders(options, count)] == firsts


def test_a_bias_on_places_averages_out() -> None:
    """A model that knows nothing and prefers the first place: each option gets each place once."""
    places = [0.7, 0.2, 0.1]
    orders = cyclic_orders(3, 3)
    average = average_orders([places] * 3, orders)
    assert average.probabilities == pytest.approx([1 / 3] * 3)
    assert average.spread == pytest.approx([0.6] * 3)


def test_probabilities_go_back_to_their_options() -> None:
    by_option = [0.5, 0.3, 0.2]
    orders = [(0, 1, 2), (2, 0, 1)]
    average = average_orders([[by_option[option] for option in order] for order in orders], orders)
    assert average.probabilities == pytest.approx(by_option)
    assert average.spread == pytest.approx([0, 0, 0])


@pytest.mark.parametrize("orders", [[], [(0, 0)], [(0, 1), (1,)]])
def test_what_is_no_order_is_refused(orders: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"order|read"):
        average_orders([[0.5, 0.5]] * len(orders), orders)
