"""Commands whose options come in groups: a parameter that is a ``Group`` stands for the fields of that class.

typer wants every option as a parameter of the command. With twenty of them that more than one command has, each
would be named four times over; a group names it once, with its help and its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Any


@dataclass(frozen=True, slots=True)
class Group:
    """Base of a frozen dataclass whose fields are options: ``Annotated`` with ``typer.Option``, and a default."""


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as typer reads it: each parameter that is a ``Group`` in the place of which stand its fields."""
    own = signature(command, eval_str=True).parameters.values()
    groups = {parameter.name: parameter.annotation for parameter in own if _is_group(parameter.annotation)}

    @wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    flat = [
        p for parameter in own for p in (_options(parameter.annotation) if parameter.name in groups else [parameter])
    ]
    # typer asks for both: the signature for the defaults, the annotations for the types.
    called.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return called


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Group)


def _options(group: type[Group]) -> list[Parameter]:
    hints = {
        name: hint for kind in reversed(group.__mro__) for name, hint in get_annotations(kind, eval_str=True).items()
    }
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]) for f in fields(group)
    ]
