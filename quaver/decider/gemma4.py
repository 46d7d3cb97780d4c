"""A Gemma 4 as a chat model that sees: its backbone under knobs, and what encodes pictures for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quaver.decider.family import Limits
from quaver.errors import BadMedia, BadRequest
from quaver.models.chat_release import ChatRelease
from quaver.models.gemma4 import CLASSES, Gemma4Backbone, load_gemma4
from quaver.models.gemma4_image import Gemma4Images
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.release import ReleaseInfo
from quaver.prompts.chat_template import UserTurn
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Json


@dataclass(frozen=True, slots=True)
class Gemma4Release:
    """``limits`` as they are once it is known whether pictures can be prepared here, ``config`` the knobs in force."""

    backbone: Gemma4Backbone
    images: Gemma4Images | None
    limits: Limits
    config: Mapping[str, Json]

    @property
    def release(self) -> ChatRelease:
        return ChatRelease(self.backbone, self.images)


def check_knobs(info: ReleaseInfo, knobs: Gemma4Knobs) -> None:
    """BadRequest for knobs of a model that has none."""
    released = Gemma4Knobs().facts()
    turned = [name for name, value in knobs.facts().items() if value != released[name]]
    if turned and (info.kind != "label" or info.backbone not in CLASSES):
        raise BadRequest(f"{info.name} is no Gemma 4 and has no {', '.join(turned)}; leave it out", (turned[0],))


def load_gemma(
    info: ReleaseInfo,
    device: str,
    dtype: str,
    tokenizer: PromptTokenizer,
    turn: UserTurn,
    limits: Limits,
    knobs: Gemma4Knobs,
) -> Gemma4Release:
    """Loads the weights; ``limits`` as far as they are known from the folder.

    Raises BadRelease when they do not fit, and BadRequest for a knob that this release does not have.
    """
    where = resolve_device(device)
    backbone = load_gemma4(info.path, where, resolve_dtype(dtype, where), knobs)
    config: Mapping[str, Json] = backbone.facts
    if not limits.images or turn.image is None:
        return Gemma4Release(backbone, None, limits, config)
    assert limits.max_length is not None
    images = Gemma4Images(
        info.path, backbone.config, tokenizer.fixed, turn.image, limits.max_length, knobs.image_budget
    )
    try:
        config = {**config, "image_budget": images.budget}
    except BadMedia as error:  # text can be read all the same
        blind = replace(limits, images=False, image_budgets=(), blind=f"because {error}")
        return Gemma4Release(backbone, None, blind, config)
    return Gemma4Release(backbone, images, limits, config)
