"""Gemma 3 with its vision tower, through transformers: text and images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Gemma3ForConditionalGeneration

from quaver.models.backbone import Inputs, Pause, Row
from quaver.models.chat_processor import ChatProcessor
from quaver.models.gemma import GemmaBackbone
from quaver.models.packed import Packing
from quaver.models.weights import load_model


class Gemma3Backbone(GemmaBackbone):
    """A loaded ``Gemma3ForConditionalGeneration``; see ``Backbone`` for the contract.

    The tokens of an image see each other in all layers, in those with a window within the window, which bounds
    only what lies before a token. Every image has as many tokens as any other.
    """

    two_ways = True

    def __init__(self, model: Any) -> None:
        image = model.config.image_token_id
        super().__init__(model, {"<image_soft_token>": image}, image, model.config.get_text_config().pad_token_id)

    def _packing(self, rows: Sequence[Row], pause: Pause | None) -> Packing:
        return Packing.of(rows, self.dtype, self.device, pause, full_blocks=True)

    @torch.inference_mode()
    def encode(self, inputs: Inputs) -> Tensor:
        assert inputs.media is not None
        pixels = inputs.media.tensors["pixel_values"].to(self.device)
        features: Tensor = self._model.get_image_features(pixels, return_dict=True).pooler_output
        return features.flatten(0, 1)[None].to(self.dtype)


class Gemma3Processor(ChatProcessor):
    """The pictures of Gemma 3, each squeezed to one square: the release's processor leaves pan and scan off."""

    def _starts(self, ids: Sequence[int]) -> list[int]:
        begin = self._processor.tokenizer.boi_token_id
        return [position for position, token in enumerate(ids) if token == begin]


def load_gemma3(path: Path, device: torch.device, dtype: torch.dtype) -> Gemma3Backbone:
    """Loads the backbone's weights, all of them and no others.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read.
    """
    return Gemma3Backbone(load_model(Gemma3ForConditionalGeneration, path, device, dtype))
