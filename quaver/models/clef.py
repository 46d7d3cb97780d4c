"""A Clef release, loaded: everything but its head, which ``quaver.heads.checkpoint`` reads."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import BadRelease
from quaver.models.backbone import Backbone
from quaver.models.omni_processor import OmniProcessor
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.processor import MediaProcessor
from quaver.models.qwen3_5 import load_qwen3_5
from quaver.models.qwen3_omni import load_qwen3_omni
from quaver.models.release import ReleaseInfo

#: Tokens a prompt may have unless the caller says otherwise, by backbone; the references' own defaults.
MAX_LENGTHS = {"qwen3_5": 16_384, "qwen3_omni_moe": 64_000}


@dataclass(frozen=True, slots=True)
class ClefRelease:
    """``info.tokenizer_file`` and ``info.path`` lead to what prompts and heads load for themselves."""

    info: ReleaseInfo
    backbone: Backbone
    processor: MediaProcessor | OmniProcessor
    max_length: int


def hears(info: ReleaseInfo) -> bool:
    """Whether a Clef release reads sound: clef-omni does."""
    return info.backbone == "qwen3_omni_moe"


def processor_of(info: ReleaseInfo) -> MediaProcessor | OmniProcessor:
    """What encodes the media of a Clef release."""
    return OmniProcessor(info.path) if hears(info) else MediaProcessor(info.path)


def load_clef(info: ReleaseInfo, device: str = "auto", dtype: str = "auto") -> ClefRelease:
    """Loads the backbone of a release that ``inspect`` has recognised.

    Raises BadRelease when its weights do not fit, Unavailable for a device or dtype that is not there.
    """
    if info.kind != "clef":
        raise BadRelease(f"{info.path} is a {info.kind} release, not a Clef release")
    where = resolve_device(device)
    load = load_qwen3_omni if hears(info) else load_qwen3_5
    backbone = load(info.path, where, resolve_dtype(dtype, where))
    return ClefRelease(info, backbone, processor_of(info), MAX_LENGTHS[info.backbone])
