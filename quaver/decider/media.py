"""What the decider says about the media of a request, whatever the family: whether, and where they stood."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quaver.decider.family import Limits
from quaver.errors import BadMedia
from quaver.protocol.strict_json import place
from quaver.questions import Request

VERBS = {"images": "see images", "audio": "hear", "videos": "watch videos"}


@contextmanager
def media_placed(request: Request, name: str, limits: Limits) -> Iterator[None]:
    """Inside, BadMedia about an item says where in the body it stood, when that is another place than the lists.

    BadMedia before anything else when the model ``name`` cannot read a kind of medium: none is left out.
    """
    try:
        _check_readable(request, name, limits)
        yield
    except BadMedia as error:
        where = request.media_places.get(error.where, error.where)
        if where == error.where:
            raise
        raise BadMedia(f"{place(where)}: {error}", where) from error


def _check_readable(request: Request, name: str, limits: Limits) -> None:
    for kind, verb in VERBS.items():
        if getattr(request, kind) and not getattr(limits, kind):
            reads = ", ".join(["text", *(known for known in VERBS if getattr(limits, known))])
            raise BadMedia(f"{kind} item 0: {name} cannot {verb}; it reads {reads}", (kind, 0))
