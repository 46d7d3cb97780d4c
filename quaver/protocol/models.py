"""Names that a request may call the served model by, and the list of them that every client can read."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping, Sequence
from typing import Any

from quaver.errors import UnknownModel
from quaver.questions import Json

#: What drop-in clients ask for unless told otherwise.
ALIASES = ("jev-latest", "jev-preview", "gpt-6-luna")

#: The list must date every model, and a release does not say its own date; this is the date of this code.
RELEASED = "2026-11-30"

#: What gateways put in front of a name.
PREFIXES = ("typesafe/", "~typesafe/", "typesafe-ai/", "@cf/")


def check_model(asked: str | None, served: str, more: Sequence[str] = ()) -> None:
    """UnknownModel unless ``asked`` is absent, the served name or an alias, with or without a gateway's prefix.

    The served name is pinned, ``name@revision``; the bare name is an alias of it, and so is ``more``.
    """
    if asked is None:
        return
    bare = next((asked.removeprefix(prefix) for prefix in PREFIXES if asked.startswith(prefix)), asked)
    names = (served, *aliases(served, more))
    if asked not in names and bare not in names:
        known = ", ".join(names)
        raise UnknownModel(f'Unknown model: "{asked[:200]}". Known models: {known}', ("model",))


def aliases(served: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Names that are not the served one and mean it."""
    name, pin, _ = served.partition("@")
    return (*([name] if pin else []), *more, *ALIASES)


def models_list(served: str, config: Mapping[str, Json], more: Sequence[str] = ()) -> dict[str, Any]:
    """The served model and its aliases, as TypeSafe's ``models`` and OpenAI's ``data`` at once.

    ``x_config``, ours, has what can be set about how the model reads, as it is in force.
    """
    created = calendar.timegm(time.strptime(RELEASED, "%Y-%m-%d"))
    described = {served: "The served model.", **dict.fromkeys(aliases(served, more), f"Answers as {served}.")}
    return {
        "models": [{"name": name, "description": text, "release_date": RELEASED} for name, text in described.items()],
        "object": "list",
        "data": [{"id": name, "object": "model", "created": created, "owned_by": "quaver"} for name in described],
        "x_config": dict(config),
    }
