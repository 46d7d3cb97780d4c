"""A decider whose engine is vLLM: the release's own prompts and arithmetic, none of its weights."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vllm.config import ModelConfig, MultiModalConfig
from vllm.engine.protocol import EngineClient

from quaver.decider import Decider, Settings
from quaver.decider.chat_media import ChatMedia
from quaver.decider.clef import ClefFamily, MediaEncoder
from quaver.decider.family import Family
from quaver.decider.label import LabelFamily, default_length, limits
from quaver.errors import BadRelease, BadRequest
from quaver.media import MediaReader
from quaver.models.chat_processor import ChatProcessor
from quaver.models.clef import MAX_LENGTHS, processor_of
from quaver.models.release import ReleaseInfo, find, inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.label import LabelPrompt
from quaver.prompts.label_compatible import CompatibleLabelPrompt
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import LabelRule
from quaver.questions.calibration import load_calibration
from quaver.vllm_plugin.joint_reads import JointAsk
from quaver.vllm_plugin.label_reads import LabelAsk
from quaver.vllm_plugin.media import VllmChatMedia, VllmMediaEncoder
from quaver.vllm_plugin.serving import VllmEngine
from quaver.vllm_plugin.settings import VllmSettings
from quaver.vllm_plugin.state_reuse import reuses_state

#: Only these modes give probabilities in the whole vocabulary.
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs")
#: The backbones of chat models whose pictures vLLM takes as our processor encodes them.
SEEING = ("qwen3_5", "qwen3_5_moe")


def decider_over(client: EngineClient, set_up: VllmSettings, media: MediaReader) -> Decider[Any]:
    """The decider for the model that ``client`` serves; call it on the loop that the client lives on.

    Raises BadRelease when it is none that quaver reads, and BadRequest for a setting that it does not have.
    """
    config = client.model_config
    at = f"{config.model}@{config.revision}" if config.revision else config.model
    info = inspect(find(config.model if Path(config.model).is_dir() else at))
    rule = LabelRule(set_up.min_label_mass, set_up.prior_correction, set_up.option_orders)
    if info.kind != "label" and (rule.wanted or set_up.prompt_style != "quaver"):
        raise BadRequest(f"{info.name} does not read labels; leave out their settings and the style of prompts")
    settings = Settings(
        reading=set_up.reading,
        on_overflow=set_up.on_overflow,
        confidence=set_up.confidence,
        calibration=None if set_up.calibration is None else load_calibration(Path(set_up.calibration)),
    )
    family: Family[Any]
    match info.kind:
        case "clef":
            family = _clef(info, set_up, media, config.max_model_len, reuses_state(client.vllm_config))
        case "label":
            if config.logprobs_mode not in LOGPROBS_MODES:
                raise BadRequest(f"label reads need --logprobs-mode {' or '.join(LOGPROBS_MODES)}")
            family = _label(info, set_up, rule, media, config)
        case _:
            raise BadRelease(f"{info.name} is read by quaver's own engine alone; serve it without vLLM")
    return Decider(family, VllmEngine(client, asyncio.get_running_loop()), settings)


def _clef(info: ReleaseInfo, set_up: VllmSettings, media: MediaReader, fits: int, reuse: bool) -> Family[Any]:
    tokenizer = PromptTokenizer(info.tokenizer_file)
    prompt = ClefPrompt(tokenizer, min(set_up.max_length or MAX_LENGTHS[info.backbone], fits), set_up.special_tokens)
    encoder = VllmMediaEncoder(MediaEncoder(processor_of(info), media), tokenizer)
    return ClefFamily(info, prompt, encoder, partial(JointAsk, reuse=reuse))


def _label(
    info: ReleaseInfo, set_up: VllmSettings, rule: LabelRule, media: MediaReader, config: ModelConfig
) -> Family[Any]:
    turn = load_chat_template(info.path).turn()
    writer = CompatibleLabelPrompt if set_up.prompt_style == "vllm" else LabelPrompt
    # One position is for the token that vLLM takes.
    length = min(set_up.max_length or default_length(info), config.max_model_len - 1)
    tokenizer = PromptTokenizer(info.tokenizer_file)
    prompt = writer(tokenizer, turn, length, set_up.special_tokens)
    reads = limits(info)
    if reads.images and (why := blindness(info, config.multimodal_config)):
        reads = replace(reads, images=False, image_budgets=(), blind=why)
    see = VllmChatMedia(ChatMedia(ChatProcessor(info.path), media), tokenizer) if reads.images else None
    return LabelFamily(info.name, prompt, LabelAsk, rule, limits=reads, see=see)


def blindness(info: ReleaseInfo, config: MultiModalConfig | None) -> str:
    """Why the pictures of a chat model that sees are not read over vLLM; empty when they are."""
    if info.backbone not in SEEING:
        return "over vLLM, which takes theirs in another form; quaver's own engine reads them"
    if config is None or config.get_limit_per_prompt("image") == 0:
        return "because vLLM was told to leave them out"
    if config.mm_device_do_normalize:
        return "because vLLM would scale their pixels once more; start it with --no-mm-device-do-normalize"
    return ""
