"""A Clef release, loaded: everything but its head, which ``quaver.heads.checkpoint`` reads."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import BadRelease
from quaver.models.backbone import Backbone
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.processor import MediaProcessor
from quaver.models.qwen3_5 import load_qwen3_5
from quaver.models.release import ReleaseInfo

#: Tokens a prompt may have unless the caller says otherwise; the reference's own default.
MAX_LENGTH = 16_384


@dataclass(frozen=True, slots=True)
class ClefRelease:
    """``info.tokenizer_file`` and ``info.path`` lead to what prompts and heads load for themselves."""

    info: ReleaseInfo
    backbone: Backbone
    processor: MediaProcessor
    max_length: int = MAX_LENGTH


def load_clef(info: ReleaseInfo, device: str = "auto", dtype: str = "auto") -> ClefRelease:
    """Loads the backbone of a release that ``inspect`` has recognised.

    Raises BadRelease when its weights do not fit, Unavailable for a device or dtype that is not there.
    """
    if info.kind != "clef":
        raise BadRelease(f"{info.path} is a {info.kind} release, not a Clef release")
    where = resolve_device(device)
    backbone = load_qwen3_5(info.path, where, resolve_dtype(dtype, where))
    return ClefRelease(info, backbone, MediaProcessor(info.path))
