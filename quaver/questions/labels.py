"""What can be wished of a model that reads labels, and what it says about its reads."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import BadRequest
from quaver.questions.kinds import MAX_OPTIONS


@dataclass(frozen=True, slots=True)
class LabelRule:
    """How a chat model's labels are read; None leaves what it was loaded with.

    An answer whose labels hold less than ``min_mass`` of the next token's probability is to be left aside.
    ``prior_correction`` divides by what the model answers about a state that says nothing. Options are read
    in so many ``orders`` and averaged. Raises BadRequest for a value that cannot be.
    """

    min_mass: float | None = None
    prior_correction: bool | None = None
    orders: int | None = None

    def __post_init__(self) -> None:
        if self.min_mass is not None and not 0 <= self.min_mass <= 1:
            raise BadRequest(
                f"the least label mass must be between 0 and 1, got {self.min_mass}", ("x_min_label_mass",)
            )
        if self.orders is not None and not 1 <= self.orders <= MAX_OPTIONS:
            raise BadRequest(f"options have 1 to {MAX_OPTIONS} orders, got {self.orders}", ("x_option_orders",))

    @property
    def wanted(self) -> bool:
        """Whether anything is asked for that only reads of labels have."""
        return self.min_mass is not None or bool(self.prior_correction) or (self.orders or 1) > 1

    def over(self, other: LabelRule) -> LabelRule:
        """This rule, and what it leaves open as ``other`` has it."""
        return LabelRule(
            other.min_mass if self.min_mass is None else self.min_mass,
            other.prior_correction if self.prior_correction is None else self.prior_correction,
            other.orders if self.orders is None else self.orders,
        )


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """About one answer read off labels. ``mass``: what they hold of the next token's probability.

    ``argmax_is_label``: no other token is likelier than the likeliest label. ``ties``: the options that share
    the largest probability exactly, which only their order would tell apart. ``order_spread``: the most that
    an option's probability differs from order to order, None when they were read in one.
    """

    mass: float
    argmax_is_label: bool
    ties: tuple[str, ...] = ()
    order_spread: float | None = None
