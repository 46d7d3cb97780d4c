"""The Qwen3.5 backbone, dense and with experts, through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration, Qwen3_5Model, Qwen3_5MoeForConditionalGeneration

from quaver.models.backbone import Computed, Inputs, Media, Pause, Row
from quaver.models.packed import NO_MASKS, Packing, laid_out, pack, run
from quaver.models.places import check_places, media_rows
from quaver.models.weights import load_model

#: By the type of the backbone, as transformers names it.
MODELS: dict[str, Any] = {
    "qwen3_5": Qwen3_5ForConditionalGeneration,
    "qwen3_5_moe": Qwen3_5MoeForConditionalGeneration,
}


class Qwen35Backbone:
    """A loaded model of ``MODELS``, or a ``Qwen3_5Model`` without an output table; see ``Backbone``.

    Text-only prompts have plain positions, as in the Clef reference; with media, positions follow their
    grids. Unless ``causal``, attention sees the whole prompt and rows must be whole prompts; recurrent
    layers are causal all the same.
    """

    softcap: float | None = None

    def __init__(self, model: Any, causal: bool = True) -> None:
        self._model = model.eval().requires_grad_(False)
        self._core: Any = getattr(model, "model", model)
        self._causal = causal
        self._text: Any = self._core.language_model
        pack(self._text)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        config: Any = model.config
        self.hidden_size: int = config.text_config.hidden_size
        self.resumable: bool = "linear_attention" not in config.text_config.layer_types
        self._media_ids = {"image": config.image_token_id, "video": config.video_token_id}

    @property
    def output_embeddings(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        tokens = torch.tensor(ids)
        if media is None:
            # Without media the pads are ordinary rows of the embedding, as in the reference.
            return Inputs(tokens, torch.arange(len(ids)).expand(3, -1))
        check_places(ids, media.ids, {f"<|{kind}_pad|>": token for kind, token in self._media_ids.items()})
        kinds = (tokens == self._media_ids["image"]).long() + 2 * (tokens == self._media_ids["video"]).long()
        grids = {name: tensor for name, tensor in media.tensors.items() if name.endswith("grid_thw")}
        positions, _ = self._core.get_rope_index(tokens[None], mm_token_type_ids=kinds[None], **grids)
        return Inputs(tokens, positions[:, 0], media, places=kinds.nonzero().squeeze(1))

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        ids, positions = laid_out(rows, self.device)
        embeddings = self._text.embed_tokens(ids)
        if media := media_rows(rows, self._encode):
            places, levels = media
            embeddings[places.to(self.device)] = levels[0]
        packing = Packing.of(rows, self.dtype, self.device, pause, causal=self._causal)
        return run(
            self._text,
            packing,
            inputs_embeds=embeddings[None],
            position_ids=positions[:, None],
            attention_mask=NO_MASKS,
        )

    def _encode(self, inputs: Inputs) -> Tensor:
        """Rows [1, M, hidden] of all media tokens of a prompt, images and videos where they stand."""
        assert inputs.media is not None and inputs.places is not None
        ids, tensors = inputs.ids[inputs.places], inputs.media.tensors
        rows = torch.empty(1, len(ids), self.hidden_size, device=self.device, dtype=self.dtype)
        for name, suffix in (("image", ""), ("video", "_videos")):
            if (pixels := tensors.get(f"pixel_values{suffix}")) is not None:
                features = getattr(self._core, f"get_{name}_features")(
                    pixels.to(self.device), tensors[f"{name}_grid_thw"].to(self.device), return_dict=True
                )
                rows[0, (ids == self._media_ids[name]).to(self.device)] = torch.cat(features.pooler_output)
        return rows


def load_qwen3_5(path: Path, device: torch.device, dtype: torch.dtype, backbone: str = "qwen3_5") -> Qwen35Backbone:
    """Loads the weights of a ``backbone`` of ``MODELS``, all of them and no others.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read.
    """
    return Qwen35Backbone(load_model(MODELS[backbone], path, device, dtype))


def load_bare_qwen3_5(path: Path, device: torch.device, dtype: torch.dtype, causal: bool) -> Qwen35Backbone:
    """Loads a ``Qwen3_5Model``, which has no output table; raises as ``load_qwen3_5``."""
    return Qwen35Backbone(load_model(Qwen3_5Model, path, device, dtype), causal)
