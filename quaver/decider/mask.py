"""Which mask a Gemma 4 reads images under, found out by looking into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quaver.decider.gemma4 import load_gemma
from quaver.decider.label import limits
from quaver.decider.load import find_model
from quaver.errors import BadMedia, BadRequest
from quaver.models.gemma4_image import PROCESSORS
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.models.gemma4_probe import mask_probe, mask_probes, probe_pictures
from quaver.models.release import inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Json

ASKED = "Describe the image."
#: Masks that a model may have instead, and in which of its layers they let an image's tokens see each other.
MASKS = {"causal": "", "bidirectional": "some", "bidirectional in all layers": "all"}


@dataclass(frozen=True, slots=True)
class MaskSeen:
    """``change`` and ``noise`` in nats at the first ``compared`` of the image's ``tokens``, and the change that
    ``others``, the same model under other masks, would show."""

    model: str
    config: Mapping[str, Json]
    tokens: int
    compared: int
    change: float
    noise: float
    others: Mapping[str, float]


def look(model: str, device: str, dtype: str, knobs: Gemma4Knobs, width: int, height: int) -> MaskSeen:
    """Reads two pictures of ``width`` x ``height`` pixels, equal above and different below, with ``model``.

    Raises BadRequest for a model that is no Gemma 4, BadMedia for one that does not see, and BadRelease for one
    that cannot be loaded.
    """
    info = inspect(find_model(model))
    if info.kind != "label" or info.backbone not in PROCESSORS:
        raise BadRequest(f"{info.name} is no Gemma 4 that sees; of others a mask is not known to differ")
    turn, tokenizer = load_chat_template(info.path).turn(), PromptTokenizer(info.tokenizer_file)
    gemma = load_gemma(info, device, dtype, tokenizer, turn, limits(info), knobs)
    backbone, images = gemma.backbone, gemma.images
    if images is None:
        raise BadMedia(f"{info.name} cannot see images {gemma.limits.blind}")
    one, other = (images.encode(turn.opening(1, 0), [picture]) for picture in probe_pictures(height, width))
    ids = (*one.ids, *tokenizer.fixed(ASKED), *tokenizer.fixed(turn.tail))
    count = one.ids.count(backbone.config.image_token_id)
    masks = {
        name: replace(knobs, bidirectional=bool(how), bidirectional_full_layers=how == "all")
        for name, how in MASKS.items()
    }
    return MaskSeen(
        info.name,
        gemma.config,
        count,
        count // 4,
        mask_probe(backbone, ids, one, other),
        mask_probe(backbone, ids, one, one),
        mask_probes(backbone, ids, one, other, masks) if backbone.sees_two_ways else {},
    )
