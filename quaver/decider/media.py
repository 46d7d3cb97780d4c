"""What the decider says about the media of a request, whatever the family: whether, how large, where they stood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from quaver.decider.family import Limits
from quaver.errors import BadMedia, BadRequest
from quaver.protocol.strict_json import place
from quaver.questions import Request

VERBS = {"images": "see images", "audio": "hear", "videos": "watch videos"}


class PlacedMedia(Protocol):
    """The media of a request: the ``ids`` that stand for them in its prompt, and by ``digests`` where each begins."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def digests(self) -> Sequence[tuple[int, bytes]]: ...


MediaOf = TypeVar("MediaOf", bound=PlacedMedia)


def check_size(request: Request, media: PlacedMedia, limit: int) -> None:
    """BadMedia for the item with which the media of a request grow larger than ``limit``, a whole prompt."""
    if len(media.ids) <= limit:
        return
    kinds = [(kind, i) for kind in VERBS for i in range(len(getattr(request, kind)))]
    ends = [*(start for start, _ in media.digests[1:]), len(media.ids)]
    kind, i = next(item for item, end in zip(kinds, ends, strict=True) if end > limit)
    raise BadMedia(
        f"{kind} item {i}: with it the media have over {limit} tokens, which is what a whole prompt may have here; "
        "send it smaller or shorter, or send fewer",
        (kind, i),
    )


def check_budget(request: Request, name: str, limits: Limits) -> None:
    """BadRequest for an image budget that the model ``name`` does not have."""
    if request.image_budget is None or request.image_budget in limits.image_budgets:
        return
    where = ("mm_processor_kwargs", "max_soft_tokens")
    if not limits.image_budgets:
        raise BadRequest(f"{place(where)}: {name} has no image budgets; leave it out", where)
    allowed = ", ".join(map(str, limits.image_budgets))
    raise BadRequest(
        f"{place(where)}: an image can have {allowed} tokens at most, got {request.image_budget}; use one of these",
        where,
    )


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
            why = f" {limits.blind}" if limits.blind and kind == "images" else ""
            raise BadMedia(f"{kind} item 0: {name} cannot {verb}{why}; it reads {reads}", (kind, 0))
