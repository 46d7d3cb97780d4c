"""``load``: a release to a decider."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from quaver.decider import clef, split
from quaver.decider.decider import Decider, Settings
from quaver.decider.family import Family, Limits
from quaver.engine.joint import JointReader
from quaver.engine.split import SplitReader
from quaver.errors import BadRequest
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.models.clef import load_clef
from quaver.models.encoder import load_encoder
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.release import ReleaseInfo, find, inspect
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.split import SplitPrompt
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.questions import ConfidenceRule, OverflowRule, ReadingMode
from quaver.questions.calibration import load_calibration

#: The name under which the model that comes with the package is loaded.
EMBEDDED = "embedded"

#: What the split read keeps of known states and schemas unless told otherwise.
SPLIT_CACHE_BYTES = 256 * 2**20


def load(
    model: str = EMBEDDED,
    *,
    device: str = "auto",
    dtype: str = "auto",
    reading: Literal["auto"] | ReadingMode = "auto",
    special_tokens: SpecialTokens = "escape",
    on_overflow: OverflowRule = "truncate",
    confidence: ConfidenceRule = "typesafe",
    max_length: int | None = None,
    state_cache_bytes: int | None = None,
    calibration: Path | str | None = None,
    max_queue: int = 256,
) -> Decider[Any]:
    """The decider for ``model``: ``embedded``, a release folder, or a hub id with an optional ``@revision``.

    ``max_length`` None takes the release's own limit in tokens (the embedded model has none),
    ``state_cache_bytes`` None a sensible size and 0 no cache. ``calibration`` is a file of
    ``quaver calibrate``, fitted on this very model.
    Raises ``BadRelease`` with the reason when the model or the calibration cannot be served, and
    ``BadRequest`` for a setting that the model does not have.
    """
    info = inspect(find_model(model))
    make = _split if info.kind == "split" else _clef
    family = make(info, device, dtype, special_tokens, max_length, state_cache_bytes)
    settings = Settings(
        reading=None if reading == "auto" else reading,
        on_overflow=on_overflow,
        confidence=confidence,
        calibration=None if calibration is None else load_calibration(Path(calibration)),
        max_queue=max_queue,
    )
    return Decider(family, settings)


def find_model(model: str) -> Path:
    """The release folder of ``model``, downloaded if it must be. Raises ``BadRelease`` when there is none."""
    return embedded_path() if model == EMBEDDED else find(model)


def embedded_path() -> Path:
    """The release folder of the embedded model, inside the package."""
    return Path(str(files("quaver") / "embedded"))


def limits_of(info: ReleaseInfo) -> tuple[Limits, tuple[ReadingMode, ...]]:
    """What a release can read and how, known without loading it."""
    family = split if info.kind == "split" else clef
    return family.LIMITS, family.READINGS


def _clef(
    info: ReleaseInfo,
    device: str,
    dtype: str,
    special_tokens: SpecialTokens,
    max_length: int | None,
    state_cache_bytes: int | None,
) -> Family[Any]:
    if state_cache_bytes:
        raise BadRequest(f"{info.name} has no state cache; leave state_cache_bytes out or give 0")
    release = load_clef(info, device, dtype)
    backbone = release.backbone
    head = load_joint_schema_head(info.path, backbone.device, backbone.dtype)
    prompt = ClefPrompt(PromptTokenizer(info.tokenizer_file), max_length or release.max_length, special_tokens)
    return clef.ClefFamily(release, prompt, JointReader(backbone, head))


def _split(
    info: ReleaseInfo,
    device: str,
    dtype: str,
    special_tokens: SpecialTokens,
    max_length: int | None,
    state_cache_bytes: int | None,
) -> Family[Any]:
    if special_tokens != "escape":
        raise BadRequest(f"{info.name} reads every text as plain text; leave special_tokens at escape")
    where = resolve_device(device)
    encoder = load_encoder(info.path, where, resolve_dtype(dtype, where))
    head = load_joint_schema_head(info.path, where)
    budget = SPLIT_CACHE_BYTES if state_cache_bytes is None else state_cache_bytes
    prompt = SplitPrompt(Tokenizer.from_file(str(info.tokenizer_file)))
    return split.SplitFamily(info.name, prompt, SplitReader(encoder, head, budget), max_length)
