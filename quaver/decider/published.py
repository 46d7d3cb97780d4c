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
from quaver.decider.loading import Loading
from quaver.engine import Reader
from quaver.engine.label import LabelHead
from quaver.engine.uncut import UncutPrompts
from quaver.engine.whole import WholeReader
from quaver.heads.readout import load_readout
from quaver.media import D1_IMAGE
from quaver.models.chat_processor import ChatProcessor
from quaver.models.chat_release import blindness, has_eyes, load_chat_release
from quaver.models.placement import resolve_device, resolve_dtype
from quaver.models.qwen3_5 import load_bare_qwen3_5
from quaver.models.release import ReleaseInfo
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.d3 import D3Format, D3Prompt
from quaver.prompts.liquid import LiquidPrompt
from quaver.prompts.tokenizer import PromptTokenizer

#: Least and most pixels of an image of Decision 3.0, which its files do not say. Source: vLLM 0.33, ``d3.py``.
D3_PIXELS = (65_536, 1_638_400)

Loaded = tuple[LabelFamily[Any, Any], Reader[Any, Any]]


def limits(info: ReleaseInfo) -> Limits:
    """What a checkpoint can read unless told otherwise."""
    blind = blindness(info)
    length = D3Format.load(info.path).max_length if info.kind == "d3" else None
    return Limits(length or default_length(info), images=has_eyes(info) and not blind, blind=blind)


def load_d3(info: ReleaseInfo, how: Loading) -> Loaded:
    """A Decision 3.0 checkpoint. Raises BadRelease for one that is not complete or of a form not known here."""
    form, limit = D3Format.load(info.path), limits(info)
    template, tokenizer = load_chat_template(info.path), PromptTokenizer(info.tokenizer_file)
    length = how.max_length or limit.max_length or MAX_LENGTH
    prompt = D3Prompt(tokenizer, template, form, length, how.special_tokens)
    where = resolve_device(how.device)
    backbone = load_bare_qwen3_5(info.path, where, resolve_dtype(how.dtype, where), form.causal)
    readout = load_readout(info.path, len(form.codes), backbone.hidden_size) / form.temperature
    head = LabelHead(readout.to(where))
    reader = how.causal(backbone, head) if form.causal else WholeReader(UncutPrompts(backbone, head))
    see = ChatMedia(ChatProcessor(info.path, D3_PIXELS), how.media) if limit.images else None
    return LabelFamily(info.name, prompt, CausalPrompts(backbone).label, how.rule, limits=limit, see=see), reader


def load_liquid(info: ReleaseInfo, how: Loading) -> Loaded:
    """Liquid's d1. Raises BadRelease for a checkpoint that is not complete or not read rightly."""
    limit = limits(info)
    turn, tokenizer = load_chat_template(info.path).turn(), PromptTokenizer(info.tokenizer_file)
    prompt = LiquidPrompt(tokenizer, turn, how.max_length or limit.max_length or MAX_LENGTH, how.special_tokens)
    release = load_chat_release(info, how.device, how.dtype, limit.images)
    backbone = release.backbone
    reader = how.causal(backbone, LabelHead(backbone.output_embeddings, backbone.softcap, best_way_only=True))
    see = ChatMedia(release.processor, how.media, D1_IMAGE) if release.processor else None
    return LabelFamily(info.name, prompt, CausalPrompts(backbone).label, how.rule, limits=limit, see=see), reader
