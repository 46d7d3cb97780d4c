"""Quaver serves decision models: a state and typed questions in, a probability for every allowed answer out.

::

    import quaver

    decider = quaver.load()
    answers = decider.decide("The parcel came late.", {"complaint": quaver.Noul("Is this a complaint?")})
    answers["complaint"].probability
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quaver.errors import QuaverError
from quaver.questions import Choice, Noul, Score

if TYPE_CHECKING:
    from quaver.client import AsyncClient as AsyncClient
    from quaver.client import Client as Client
    from quaver.decider import Decider as Decider
    from quaver.decider import load as load

__all__ = ["AsyncClient", "Choice", "Client", "Decider", "Noul", "QuaverError", "Score", "load"]

# Loaded on first use: a client must not need torch, and a decider must not need a client.
_LAZY = {
    "AsyncClient": "quaver.client",
    "Client": "quaver.client",
    "Decider": "quaver.decider",
    "load": "quaver.decider",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'quaver' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
