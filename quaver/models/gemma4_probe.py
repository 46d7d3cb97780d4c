"""Whether the tokens of an image see each other, found out by looking: two pictures that differ below only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from quaver.errors import BadRequest
from quaver.models.backbone import Inputs, Media, Row
from quaver.models.gemma4 import Gemma4Backbone
from quaver.models.gemma4_knobs import Gemma4Knobs


@dataclass(frozen=True, slots=True)
class ProbePicture:
    """RGB bytes, [height, width, 3], and their digest: a ``Picture`` for a processor."""

    pixels: Any

    @property
    def digest(self) -> str:
        return sha256(self.pixels.tobytes()).hexdigest()


def probe_pictures(height: int, width: int, seed: int = 0) -> tuple[ProbePicture, ProbePicture]:
    """Two pictures of coloured squares, equal in the upper half and different everywhere in the lower one."""
    squares = torch.randint(
        0, 256, (-(-height // 24), -(-width // 24), 3), generator=torch.Generator().manual_seed(seed)
    )
    one = squares.repeat_interleave(24, 0).repeat_interleave(24, 1)[:height, :width].to(torch.uint8).contiguous()
    other = one.clone()
    other[height // 2 :] = 255 - other[height // 2 :]
    return ProbePicture(one.numpy()), ProbePicture(other.numpy())


@torch.inference_mode()
def mask_probe(backbone: Gemma4Backbone, ids: Sequence[int], one: Media, other: Media) -> float:
    """The largest change of a log-probability at the first quarter of an image's tokens, in nats, when its lower
    half changes: exactly 0.0 where an image is read causally.

    ``ids`` is a prompt with the one image that ``one`` and ``other`` show, cut to as many tokens, equal above
    and different below. A vision tower lets every patch see the whole picture; so that only the mask is
    looked at, the soft tokens of the upper half of ``other`` are put in place of its own.

    Raises BadRequest when the two are not one image each of the same shape, of 8 tokens or more.
    """
    if one.ids != other.ids or len(one.digests) != 1:
        raise BadRequest("a mask is probed with two pictures of the same shape, alone in their prompts")
    first, second = (backbone.prepare(ids, media) for media in (one, other))
    assert first.places is not None
    count = len(first.places)
    if count < 8:
        raise BadRequest(f"a mask is probed with an image of 8 tokens or more, got {count}; send a larger picture")
    first.rows, second.rows = backbone.encode(first), backbone.encode(second)
    second.rows[:, : count // 2] = first.rows[:, : count // 2]
    seen = first.places[: count // 4]
    return float((_log_probabilities(backbone, first, seen) - _log_probabilities(backbone, second, seen)).abs().max())


def mask_probes(
    backbone: Gemma4Backbone, ids: Sequence[int], one: Media, other: Media, knobs: Mapping[str, Gemma4Knobs]
) -> dict[str, float]:
    """``mask_probe`` under each of some knobs of the mask, by name."""
    return {name: mask_probe(backbone.under(these), ids, one, other) for name, these in knobs.items()}


def _log_probabilities(backbone: Gemma4Backbone, inputs: Inputs, places: Tensor) -> Tensor:
    """Those of the next token after each of ``places``, [n, vocabulary], in float32."""
    [computed] = backbone.forward([Row(inputs, 0, len(inputs))])
    logits = computed.hidden[places.to(backbone.device)].float() @ backbone.output_embeddings.float().T
    if cap := backbone.softcap:
        logits = cap * torch.tanh(logits / cap)
    return logits.log_softmax(-1)
