"""The LFM2-VL backbone of Liquid's models, through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Lfm2VlForConditionalGeneration

from quaver.models.backbone import Computed, Inputs, Media, Pause, Row
from quaver.models.packed import NO_MASKS, Packing, laid_out, pack, run
from quaver.models.places import check_places, media_rows
from quaver.models.weights import load_model


class Lfm2VlBackbone:
    """A loaded ``Lfm2VlForConditionalGeneration``; see ``Backbone`` for the contract.

    Most layers are short convolutions, so a prompt can be continued only where their state was kept.
    """

    resumable = False
    softcap: float | None = None

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        self._text: Any = model.model.language_model
        pack(self._text)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.hidden_size: int = model.config.text_config.hidden_size
        self._image: int = model.config.image_token_id

    @property
    def output_embeddings(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        tokens = torch.tensor(ids)
        inputs = Inputs(tokens, torch.arange(len(ids))[None], media)
        if media is not None:
            check_places(ids, media.ids, {"<image>": self._image})
            inputs.places = (tokens == self._image).nonzero().squeeze(1)
        return inputs

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        ids, positions = laid_out(rows, self.device)
        embeddings = self._text.embed_tokens(ids)
        if media := media_rows(rows, self._encode):
            places, levels = media
            embeddings[places.to(self.device)] = levels[0]
        packing = Packing.of(rows, self.dtype, self.device, pause)
        return run(self._text, packing, inputs_embeds=embeddings[None], position_ids=positions, attention_mask=NO_MASKS)

    def _encode(self, inputs: Inputs) -> Tensor:
        """Rows [1, M, hidden] of all image tokens of a prompt."""
        assert inputs.media is not None
        names = ("pixel_values", "spatial_shapes", "pixel_attention_mask")
        pixels, shapes, mask = (inputs.media.tensors[name].to(self.device) for name in names)
        features = self._model.model.get_image_features(pixels.to(self.dtype), shapes, mask, return_dict=True)
        return torch.cat(features.pooler_output)[None].to(self.dtype)


def load_lfm2_vl(path: Path, device: torch.device, dtype: torch.dtype) -> Lfm2VlBackbone:
    """Loads the backbone's weights, all of them and no others.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read.
    """
    return Lfm2VlBackbone(load_model(Lfm2VlForConditionalGeneration, path, device, dtype))
