"""``load``: a release to a decider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from quaver.decider import clef, label, published, split
from quaver.decider.causal import CausalPrompts
from quaver.decider.chat_media import ChatMedia
from quaver.decider.decider import Decider, Settings
from quaver.decider.family import Family, Limits
from quaver.decider.gemma4 import check_knobs, load_gemma
from quaver.decider.loading import Loading
from quaver.engine import Engine, Policy, Reader
from quaver.engine.joint import JointHead
from quaver.engine.label import LabelHead
from quaver.engine.split import SplitReader
from quaver.engine.whole import WholeReader
from quaver.errors import BadRequest
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.media import MediaReader
from quaver.models.chat_release import load_chat_release
from quaver.models.clef import load_clef
from quaver.models.encoder import load_encoder
from quaver.models.gemma4 import CLASSES
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.models.placement import in_a_thread_that_ends, resolve_device, resolve_dtype
from quaver.models.placement import step_tokens as default_step
from quaver.models.release import LABELLED, ReleaseInfo, find, inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.label import LabelPrompt
from quaver.prompts.label_compatible import CompatibleLabelPrompt
from quaver.prompts.split import SplitPrompt
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.questions import ConfidenceRule, Json, LabelRule, OverflowRule, ReadingMode
from quaver.questions.calibration import load_calibration

PromptStyle = Literal["quaver", "vllm"]

#: The name under which the model that comes with the package is loaded.
EMBEDDED = "embedded"

#: What the split read keeps of known states and schemas unless told otherwise.
SPLIT_CACHE_BYTES = 256 * 2**20

#: Prompts computed in one step; far more than fit on a CPU, enough for a GPU.
MAX_STEP_ROWS = 256


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
    max_queue_tokens: int = 1 << 20,
    step_tokens: int | None = None,
    deterministic: bool = False,
    media: MediaReader | None = None,
    min_label_mass: float | None = None,
    prior_correction: bool = False,
    option_orders: int = 1,
    prompt_style: PromptStyle = "quaver",
    knobs: Gemma4Knobs | None = None,
) -> Decider[Any]:
    """The decider for ``model``: ``embedded``, a release folder, or a hub id with an optional ``@revision``.

    ``max_length`` None takes the release's own limit in tokens (the embedded model has none),
    ``state_cache_bytes`` None a quarter of the memory that is free once the model is loaded (256 MiB for
    the embedded model) and 0 no cache. ``calibration`` is a file of ``quaver calibrate``, fitted on this
    very model. At most ``max_queue`` requests and ``max_queue_tokens`` tokens wait; ``step_tokens`` are
    computed at a time, None suits the device. ``deterministic`` answers are equal to the bit whatever else
    is asked, for which requests are computed one by one. ``media`` reads images, audio and videos; None
    decodes them in this process and takes only what a request carries, besides files given as paths.

    ``min_label_mass`` to ``prompt_style`` are for models that are read by their labels, see ``LabelRule`` and
    docs/label-reads.md; ``prompt_style``, for chat models alone, ``vllm`` writes prompts as that server does.
    ``knobs`` change how a Gemma 4 sees.

    Raises ``BadRelease`` with the reason when the model or the calibration cannot be served, and
    ``BadRequest`` for a setting that the model does not have.
    """
    info = inspect(find_model(model))
    rule = LabelRule(min_label_mass, prior_correction, option_orders)
    if info.kind not in LABELLED and (rule.wanted or prompt_style != "quaver"):
        raise BadRequest(f"{info.name} does not read labels; leave out their settings and the style of prompts")
    if info.kind != "label" and prompt_style != "quaver":
        raise BadRequest(f"{info.name} is asked in prompts of its own; leave out the style of prompts")
    if knobs is not None:
        check_knobs(info, knobs)
    settings = Settings(
        reading=None if reading == "auto" else reading,
        on_overflow=on_overflow,
        confidence=confidence,
        calibration=None if calibration is None else load_calibration(Path(calibration)),
    )
    # Before gigabytes are read.
    settings.check(info.name, limits_of(info)[1])
    how = Loading(
        device,
        dtype,
        special_tokens,
        max_length,
        state_cache_bytes,
        deterministic,
        rule=rule,
        media=media or MediaReader(),
    )
    family, reader = in_a_thread_that_ends(lambda: _read(info, how, prompt_style, knobs or Gemma4Knobs()))
    step, together = default_step(resolve_device(device))
    # A reader that takes prompts one after another had better answer each before the next.
    rows = 1 if deterministic or isinstance(reader, WholeReader) else MAX_STEP_ROWS
    engine = Engine(reader, Policy(step_tokens or step, rows, together), max_queue, max_queue_tokens)
    return Decider(family, engine, settings)


def _read(
    info: ReleaseInfo, how: Loading, style: PromptStyle, knobs: Gemma4Knobs
) -> tuple[Family[Any], Reader[Any, Any]]:
    """The release, by its kind: who writes its prompts and who reads them."""
    match info.kind:
        case "split":
            return _split(info, how)
        case "label":
            return _label(info, how, style, knobs)
        case "clef":
            return _clef(info, how)
        case "d3":
            return published.load_d3(info, how)
        case "liquid":
            return published.load_liquid(info, how)


def find_model(model: str) -> Path:
    """The release folder of ``model``, downloaded if it must be. Raises ``BadRelease`` when there is none."""
    return embedded_path() if model == EMBEDDED else find(model)


def embedded_path() -> Path:
    """The release folder of the embedded model, inside the package."""
    return Path(str(files("quaver") / "embedded"))


def limits_of(info: ReleaseInfo) -> tuple[Limits, tuple[ReadingMode, ...]]:
    """What a release can read and how, known without loading it."""
    if info.kind == "split":
        return split.LIMITS, split.READINGS
    if info.kind == "label":
        return label.limits(info), label.READINGS
    if info.kind in LABELLED:
        return published.limits(info), label.READINGS
    return clef.limits(info), clef.READINGS


def _clef(info: ReleaseInfo, how: Loading) -> tuple[Family[Any], Reader[Any, Any]]:
    release = load_clef(info, how.device, how.dtype)
    backbone = release.backbone
    reader = how.causal(backbone, JointHead.load(info.path, backbone))
    prompt = ClefPrompt(PromptTokenizer(info.tokenizer_file), how.max_length or release.max_length, how.special_tokens)
    encoder = clef.MediaEncoder(release.processor, how.media)
    return clef.ClefFamily(info, prompt, encoder, CausalPrompts(backbone).joint), reader


def _label(
    info: ReleaseInfo, how: Loading, style: PromptStyle, knobs: Gemma4Knobs
) -> tuple[Family[Any], Reader[Any, Any]]:
    # The prompt first: what it refuses is told before gigabytes are loaded.
    turn = load_chat_template(info.path).turn()
    limits = label.limits(info)
    writer = CompatibleLabelPrompt if style == "vllm" else LabelPrompt
    length = how.max_length or label.default_length(info)
    tokenizer = PromptTokenizer(info.tokenizer_file)
    prompt = writer(tokenizer, turn, length, how.special_tokens)
    config: Mapping[str, Json] = {}
    if info.backbone in CLASSES:
        gemma = load_gemma(info, how.device, how.dtype, tokenizer, turn, replace(limits, max_length=length), knobs)
        release, limits, config = gemma.release, gemma.limits, gemma.config
    else:
        release = load_chat_release(info, how.device, how.dtype, limits.images)
    backbone = release.backbone
    reader = how.causal(backbone, LabelHead(backbone.output_embeddings, backbone.softcap))
    see = ChatMedia(release.processor, how.media) if release.processor else None
    make = CausalPrompts(backbone).label
    return label.LabelFamily(info.name, prompt, make, how.rule, limits=limits, see=see, config=config), reader


def _split(info: ReleaseInfo, how: Loading) -> tuple[Family[Any], Reader[Any, Any]]:
    if how.special_tokens != "escape":
        raise BadRequest(f"{info.name} reads every text as plain text; leave special_tokens at escape")
    where = resolve_device(how.device)
    encoder = load_encoder(info.path, where, resolve_dtype(how.dtype, where))
    head = load_joint_schema_head(info.path, where)
    # What is known already changes which texts are encoded together, and so their last bits.
    kept = SPLIT_CACHE_BYTES if how.state_cache_bytes is None else how.state_cache_bytes
    prompt = SplitPrompt(Tokenizer.from_file(str(info.tokenizer_file)))
    reader = WholeReader(SplitReader(encoder, head, 0 if how.deterministic else kept))
    return split.SplitFamily(info.name, prompt, how.max_length), reader
