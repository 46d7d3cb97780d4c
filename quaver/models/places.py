"""Media rows at their places among the tokens of packed rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from quaver.errors import BadRequest
from quaver.models.backbone import Inputs, Row


def media_rows(rows: Sequence[Row], encode: Callable[[Inputs], Tensor]) -> tuple[Tensor, Tensor] | None:
    """Where media stand in the batch, ascending [n], and what stands there [levels, n, hidden].

    ``encode`` makes the rows [levels, M, hidden] of a prompt's media; it is called for the first part of
    the prompt that holds any, and never again. None when no row of the batch holds media.
    """
    places, found, begin = [], [], 0
    for row in rows:
        inputs = row.inputs
        if inputs.places is not None:
            first, last = torch.searchsorted(inputs.places, torch.tensor([row.start, row.end])).tolist()
            if first < last:
                if inputs.rows is None:
                    inputs.rows = encode(inputs)
                places.append(inputs.places[first:last] + (begin - row.start))
                found.append(inputs.rows[:, first:last])
        begin += row.end - row.start
    return (torch.cat(places), torch.cat(found, dim=1)) if places else None


def check_places(ids: Sequence[int], of_media: Sequence[int], pads: Mapping[str, int]) -> None:
    """Raises BadRequest where a prompt has tokens for media that its text wrote: more, of any in ``pads``, which has
    them as they are written, than the tokens ``of_media`` have."""
    for written, token in pads.items():
        expected, found = of_media.count(token), ids.count(token)
        if found != expected:
            raise BadRequest(
                f"the prompt holds {found} {written} tokens where its media give {expected}; remove {written} from "
                "the text, or read special tokens in it as plain text"
            )
