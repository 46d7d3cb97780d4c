"""Media that our own rules read and our own processor encoded, as vLLM's model classes take them.

vLLM would fetch, decode and resize by its own rules. Here only the model's part is left to it, so the same picture
has the same tokens and patches as with our engine. Items travel through vLLM's media cache: a picture that its
engine holds is not sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import BatchFeature
from vllm.engine.protocol import EngineClient
from vllm.inputs import EngineInput
from vllm.inputs.engine import mm_input
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems, PlaceholderRange

from quaver.decider.chat_media import ChatMedia
from quaver.decider.clef import MediaEncoder
from quaver.models.backbone import Media
from quaver.models.places import check_places
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Request

#: In the order in which a prompt has them.
MODALITIES = ("image", "audio", "video")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VllmMedia:
    """The ``media`` of one request: ``counts`` items of each modality, in which vLLM fills the tokens ``pads``, by what
    they are written as."""

    media: Media
    counts: tuple[int, ...]
    pads: Mapping[str, int]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.media.ids

    @property
    def digests(self) -> tuple[tuple[int, bytes], ...]:
        return self.media.digests

    async def input(self, client: EngineClient, ids: list[int], start: int, salt: str | None) -> EngineInput:
        """The prompt ``ids``, in which the media begin at ``start``. BadRequest where its text stands for media."""
        check_places(ids, self.ids, self.pads)
        known = [hashlib.sha256((salt or "").encode() + digest).hexdigest() for _, digest in self.digests]
        hashes = self._by_modality(known)
        return mm_input(
            ids,
            mm_kwargs=await _through_cache(client, _items(self.media.tensors), hashes),
            mm_hashes=hashes,
            mm_placeholders=self._by_modality([*self._ranges(start)]),
            cache_salt=salt,
        )

    def _ranges(self, start: int) -> Iterator[PlaceholderRange]:
        """Of each item, from behind its opening token to its last pad."""
        filled = torch.isin(torch.tensor(self.ids), torch.tensor([*self.pads.values()]))
        for begin, end in pairwise([*(position for position, _ in self.digests), len(self.ids)]):
            of_item = filled[begin + 1 : end]
            of_item = of_item[: int(of_item.nonzero().max()) + 1]
            yield PlaceholderRange(start + begin + 1, len(of_item), None if bool(of_item.all()) else of_item)

    def _by_modality(self, values: list[T]) -> dict[str, list[T]]:
        """``values``, one per item, apart."""
        ends = pairwise(accumulate(self.counts, initial=0))
        return {kind: values[begin:end] for kind, (begin, end) in zip(MODALITIES, ends, strict=True) if end > begin}


@dataclass(frozen=True, slots=True)
class VllmMediaEncoder:
    """Media of Clef requests, read by our rules, for vLLM; ``tokenizer`` knows the pads."""

    encode: MediaEncoder
    tokenizer: PromptTokenizer

    def __call__(self, request: Request) -> VllmMedia | None:
        media = self.encode(request)
        return None if media is None else _of(request, media, self.tokenizer)


@dataclass(frozen=True, slots=True)
class VllmChatMedia:
    """The same of requests to chat models, given the ``text`` with which their prompt opens."""

    encode: ChatMedia
    tokenizer: PromptTokenizer

    def __call__(self, request: Request, text: str) -> VllmMedia:
        return _of(request, self.encode(request, text), self.tokenizer)


def _of(request: Request, media: Media, tokenizer: PromptTokenizer) -> VllmMedia:
    written = [f"<|{kind}_pad|>" for kind in MODALITIES]
    pads = {pad: ids[0] for pad in written if len(ids := tokenizer.fixed(pad)) == 1}
    return VllmMedia(media, (len(request.images), len(request.audio), len(request.videos)), pads)


def _items(tensors: Mapping[str, Tensor]) -> Mapping[str, Sequence[Any]]:
    """What a processor of transformers gave, item by item, under vLLM's names."""
    renamed = dict(tensors)
    if (seconds := renamed.pop("video_second_per_grid", None)) is not None:
        renamed["second_per_grid_ts"] = seconds
    if (heard := renamed.get("feature_attention_mask")) is not None:
        # Padded clips [clips, values, frames] become one after another, [values, frames].
        features = renamed.pop("input_features")
        renamed["input_audio_features"] = features.movedim(1, 2)[heard.bool()].T
        renamed["audio_feature_lengths"] = heard.sum(-1)
    none = torch.empty(0, 3, dtype=torch.long)
    patches = {kind: renamed.get(f"{kind}_grid_thw", none).prod(-1) for kind in ("image", "video")}
    frames = renamed.get("audio_feature_lengths", none[:, 0])
    return MultiModalKwargsItems.from_hf_inputs(
        BatchFeature(renamed),
        {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", patches["image"]),
            "image_grid_thw": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
            "pixel_values_videos": MultiModalFieldConfig.flat_from_sizes("video", patches["video"]),
            "video_grid_thw": MultiModalFieldConfig.batched("video", keep_on_cpu=True),
            "second_per_grid_ts": MultiModalFieldConfig.batched("video", keep_on_cpu=True),
            "input_audio_features": MultiModalFieldConfig.flat_from_sizes("audio", frames, dim=1),
            "audio_feature_lengths": MultiModalFieldConfig.batched("audio", keep_on_cpu=True),
            # Nothing reads it beside the lengths, but the model's class asks for it.
            "feature_attention_mask": MultiModalFieldConfig.batched("audio", keep_on_cpu=True),
        },
    )


async def _through_cache(
    client: EngineClient, items: Mapping[str, Sequence[Any]], hashes: Mapping[str, Sequence[str]]
) -> MultiModalKwargsItems[Any]:
    """``items``, None in the place of those that the engine holds already."""
    renderer: Any = client.renderer
    cache = renderer.mm_processor_cache

    def look_up() -> dict[str, list[Any]]:
        if hasattr(renderer, "_drain_mm_cache_invalidations"):  # 0.33 does so where it prepares media itself
            renderer._drain_mm_cache_invalidations()
        return {
            kind: [
                cache.get_and_update_item((item, []), known)[0]
                for item, known in zip(of_kind, hashes[kind], strict=True)
            ]
            for kind, of_kind in items.items()
        }

    if cache is None:
        return MultiModalKwargsItems(items)
    # The one thread on which vLLM touches that cache.
    return MultiModalKwargsItems(await asyncio.get_running_loop().run_in_executor(renderer._mm_executor, look_up))
