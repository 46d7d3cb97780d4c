"""Published decision checkpoints that are read by the codes of their options: Decision 3.0 and Liquid's d1.

Each is asked in its own prompt, one per question. Its codes are labels, so what holds for label reads holds
here; see ``LabelFamily``.
"""

from __future__ import annotations

from typing import Any

from quaver.decider.causal import CausalPrompts
from quaver.decider.chat_media import ChatMedia
from quaver.decider.family import Limits
from quaver.decider.label import MAX_LENGTH, LabelFamily, default_length
from quaver.engine import Reader
from quaver.engine.causal import CausalReader
from quaver.engine.label import LabelHead
from quaver.engine.uncut import UncutPrompts
from quaver.engine.whole import WholeReader
from quaver.heads.readout import load_readout
from quaver.media import D1_IMAGE, MediaReader
from quaver.models.chat_processor import ChatProcessor
from quaver.models.chat_release import blindness, has_eyes, load_chat_release
from quaver.models.placement import resolve_device, resolve_dtype, state_budget
from quaver.models.qwen3_5 import load_bare_qwen3_5
from quaver.models.release import ReleaseInfo
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.d3 import D3Format, D3Prompt
from quaver.prompts.liquid import LiquidPrompt
from quaver.prompts.tokenizer import PromptTokenizer, SpecialTokens
from quaver.questions import LabelRule

#: Least and most pixels of an image of Decision 3.0, which its files do not say. Source: vLLM 0.33, ``d3.py``.
D3_PIXELS = (65_536, 1_638_400)

Loaded = tuple[LabelFamily[Any, Any], Reader[Any, Any]]


def limits(info: ReleaseInfo) -> Limits:
    """What a checkpoint can read unless told otherwise."""
    blind = blindness(info)
    length = D3Format.load(info.path).max_length if info.kind == "d3" else None
    return Limits(length or default_length(info), images=has_eyes(info) and not blind, blind=blind)


def load_d3(
    info: ReleaseInfo,
    device: str,
    dtype: str,
    special_tokens: SpecialTokens,
    max_length: int | None,
    state_cache_bytes: int | None,
    deterministic: bool,
    rule: LabelRule,
    media: MediaReader,
) -> Loaded:
    """A Decision 3.0 checkpoint. Raises BadRelease for one that is not complete or of a form not known here."""
    form, limit = D3Format.load(info.path), limits(info)
    template, tokenizer = load_chat_template(info.path), PromptTokenizer(info.tokenizer_file)
    prompt = D3Prompt(tokenizer, template, form, max_length or limit.max_length or MAX_LENGTH, special_tokens)
    where = resolve_device(device)
    backbone = load_bare_qwen3_5(info.path, where, resolve_dtype(dtype, where), form.causal)
    readout = load_readout(info.path, len(form.codes), backbone.hidden_size) / form.temperature
    head = LabelHead(readout.to(where))
    reader: Reader[Any, Any]
    if form.causal:
        reader = CausalReader(backbone, head, state_budget(where, state_cache_bytes), deterministic)
    else:
        reader = WholeReader(UncutPrompts(backbone, head))
    see = ChatMedia(ChatProcessor(info.path, D3_PIXELS), media) if limit.images else None
    return LabelFamily(info.name, prompt, CausalPrompts(backbone).label, rule, limits=limit, see=see), reader


def load_liquid(
    info: ReleaseInfo,
    device: str,
    dtype: str,
    special_tokens: SpecialTokens,
    max_length: int | None,
    state_cache_bytes: int | None,
    deterministic: bool,
    rule: LabelRule,
    media: MediaReader,
) -> Loaded:
    """Liquid's d1. Raises BadRelease for a checkpoint that is not complete or not read rightly."""
    limit = limits(info)
    turn, tokenizer = load_chat_template(info.path).turn(), PromptTokenizer(info.tokenizer_file)
    prompt = LiquidPrompt(tokenizer, turn, max_length or limit.max_length or MAX_LENGTH, special_tokens)
    release = load_chat_release(info, device, dtype, limit.images)
    backbone = release.backbone
    head = LabelHead(backbone.output_embeddings, backbone.softcap, best_way_only=True)
    reader = CausalReader(backbone, head, state_budget(backbone.device, state_cache_bytes), deterministic)
    see = ChatMedia(release.processor, media, D1_IMAGE) if release.processor else None
    return LabelFamily(info.name, prompt, CausalPrompts(backbone).label, rule, limits=limit, see=see), reader
