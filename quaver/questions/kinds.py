"""What can be asked: yes/no, one of several options, a level on an ordered scale.

Instructions and criteria may be text or any JSON value and are kept as given. The order of
options is the order of the request; how a model reads them is the business of ``prompts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quaver.errors import BadQuestion

#: The limits that TypeSafe documents (docs.typesafe.ai/api); the conformance suite jevcompat asks for all of both.
#: One option or level, which it leaves open, is answered too.
MAX_OPTIONS = 255
MAX_LEVELS = 10

#: Any JSON value: None, bool, int, float, str, list or dict.
Json = Any


@dataclass(frozen=True, slots=True)
class Noul:
    """A yes/no question, answered by the probability of *true*.

    ``criteria`` may describe ``"true"``, ``"false"``, both or neither; a side that is present
    with ``None`` has no description, a side that is absent keeps the model's default one.
    """

    instructions: Json = None
    criteria: Mapping[str, Json] | None = None
    type: ClassVar[str] = "noul"

    def __post_init__(self) -> None:
        if self.criteria is not None and not isinstance(self.criteria, Mapping):
            raise BadQuestion(f"noul criteria must be an object with true and false, got {_kind(self.criteria)}")

    @property
    def option_ids(self) -> tuple[str, ...]:
        # The order in which every model of ours is asked and its probabilities come back.
        return ("true", "false")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of 1 to 255 named options. ``criteria`` maps each option's id to its description or None.

    A list of names is accepted and means options without descriptions.
    """

    instructions: Json = None
    criteria: Mapping[str, Json] | Sequence[str] = field(default_factory=dict)
    type: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        options = self.criteria
        # Counted before anything is looked at: a body may list a million names.
        if isinstance(options, (Mapping, list, tuple)) and not 1 <= len(options) <= MAX_OPTIONS:
            raise BadQuestion(f"choice needs 1 to {MAX_OPTIONS} options, got {len(options)}")
        if isinstance(options, (list, tuple)):
            strangers = [option for option in options if not isinstance(option, str)]
            if strangers:
                raise BadQuestion(f"choice options must be text, got {strangers[0]!r}")
            twice = next((option for i, option in enumerate(options) if option in options[:i]), None)
            if twice is not None:
                raise BadQuestion(f"choice option {twice!r} appears twice; options must be unique")
            options = dict.fromkeys(options)
        if not isinstance(options, Mapping):
            raise BadQuestion(f"choice criteria must be an object of option to description, got {_kind(options)}")
        settled = {str(name): about for name, about in options.items()}
        if len(settled) < len(options):
            raise BadQuestion(f"choice options must differ as text, got {list(options)}")
        # The one way to settle a field of a frozen dataclass. A dict of our own, because a read-only view of the
        # caller's could be neither copied nor sent to another process.
        object.__setattr__(self, "criteria", settled)

    @property
    def options(self) -> Mapping[str, Json]:
        """Each option's description, or None, by its id, in request order."""
        assert isinstance(self.criteria, Mapping), "a list of names becomes a mapping when the question is made"
        return self.criteria

    @property
    def option_ids(self) -> tuple[str, ...]:
        return tuple(self.options)


@dataclass(frozen=True, slots=True)
class Score:
    """A level on an ordered scale of 1 to 10 levels, lowest first; the answer is the expected index."""

    instructions: Json = None
    criteria: Sequence[Json] = ()
    type: ClassVar[str] = "score"

    def __post_init__(self) -> None:
        if not isinstance(self.criteria, (list, tuple)):
            raise BadQuestion(f"score criteria must be a list of levels, lowest first, got {_kind(self.criteria)}")
        if not 1 <= len(self.criteria) <= MAX_LEVELS:
            raise BadQuestion(f"score needs 1 to {MAX_LEVELS} levels, got {len(self.criteria)}")
        object.__setattr__(self, "criteria", tuple(self.criteria))

    @property
    def option_ids(self) -> tuple[str, ...]:
        return tuple(str(level) for level in range(len(self.criteria)))


Question = Noul | Choice | Score


def _kind(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "text"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "a list" if isinstance(value, Sequence) else type(value).__name__)
