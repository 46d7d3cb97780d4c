"""A chat release, loaded: its backbone, and what encodes pictures for it where they can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from quaver.models.backbone import Backbone, Media
from quaver.models.chat import load_chat
from quaver.models.chat_processor import ChatProcessor
from quaver.models.gemma3 import Gemma3Processor, load_gemma3
from quaver.models.gemma4_image import PROCESSORS
from quaver.models.lfm2_vl import load_lfm2_vl
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.qwen3_5 import load_qwen3_5
from quaver.models.release import ReleaseInfo

#: One of these must lie in the folder of a model whose pictures are read.
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


class ChatBackbone(Backbone, Protocol):
    """A backbone of a chat model; ``softcap`` bounds its final logits, None where nothing does."""

    softcap: float | None


class EncodesPictures(Protocol):
    """The processor of a chat model; ``ChatProcessor`` is one."""

    @property
    def encode(self) -> Callable[..., Media]:
        """Takes a text and the images for its placeholders, and a ``budget`` of tokens for each where models have
        budgets; gives the ids of the text with as many tokens as each image has."""


Load = Callable[[Path, torch.device, torch.dtype], ChatBackbone]

#: How models that see are loaded, by the type of the backbone.
SEEING: dict[str, Load] = {
    "qwen3_5": partial(load_qwen3_5, backbone="qwen3_5"),
    "qwen3_5_moe": partial(load_qwen3_5, backbone="qwen3_5_moe"),
    "lfm2_vl": load_lfm2_vl,
    "gemma3": load_gemma3,
}
#: Of those of them whose processor needs more than ``ChatProcessor``, what encodes their pictures.
PICTURES: dict[str, type[ChatProcessor]] = {"gemma3": Gemma3Processor}


@dataclass(frozen=True, slots=True)
class ChatRelease:
    """``processor`` is None where pictures are not read."""

    backbone: ChatBackbone
    processor: EncodesPictures | None


def has_eyes(info: ReleaseInfo) -> bool:
    """Whether the model of a release could see, whoever reads it."""
    return "vision_config" in info.config


def blindness(info: ReleaseInfo) -> str:
    """Why pictures are not read of a model that could see; empty when they are, or when it could not."""
    if not has_eyes(info):
        return ""
    if info.backbone not in SEEING and info.backbone not in PROCESSORS:
        return f"because images of {info.backbone} models are not read here"
    if not any((info.path / name).is_file() for name in PROCESSOR_FILES):
        return f"because its folder has neither {' nor '.join(PROCESSOR_FILES)}"
    return ""


def load_chat_release(info: ReleaseInfo, device: str, dtype: str, sees: bool) -> ChatRelease:
    """Loads the weights of a chat model, with those that it sees by when it ``sees``.

    Raises BadRelease when they do not fit or are not read rightly, Unavailable for a device or dtype that is
    not there.
    """
    where = resolve_device(device)
    precision = resolve_dtype(dtype, where)
    # A model without its eyes is less to load, where transformers has such a class.
    blind = not sees and info.backbone in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    load = load_chat if blind else SEEING.get(info.backbone, load_chat)
    backbone = load(info.path, where, precision)
    return ChatRelease(backbone, PICTURES.get(info.backbone, ChatProcessor)(info.path) if sees else None)
