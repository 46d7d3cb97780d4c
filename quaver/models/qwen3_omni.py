"""The Qwen3-Omni thinker of clef-omni, through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3OmniMoeThinkerForConditionalGeneration

from quaver.errors import BadRequest
from quaver.models.backbone import Computed, Inputs, Media, Row
from quaver.models.experts import check_experts
from quaver.models.packed import Packing, pack, run
from quaver.models.places import media_rows
from quaver.models.weights import load_model

#: Parts of the published checkpoint that speak; a decision needs the thinker alone.
SPEAKING = ("talker.", "code2wav.")


class Qwen3OmniBackbone:
    """A loaded ``Qwen3OmniMoeThinkerForConditionalGeneration``; see ``Backbone`` for the contract.

    Pictures enter the text model more than once: as embeddings, and added to the rows after its first
    layers (deep stack). So ``Inputs.rows`` has [1 + taps, M, hidden]; sounds have zeros in the taps.
    """

    resumable = True

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        self._text: Any = model.model.language_model
        pack(self._text)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        config: Any = model.config
        self.hidden_size: int = config.text_config.hidden_size
        self._pads = {f"{kind}_pad": getattr(config, f"{kind}_token_id") for kind in ("image", "audio", "video")}
        self._vision_start: int = config.vision_start_token_id
        self._audio_start: int = config.audio_start_token_id
        self._levels = 1 + len(config.vision_config.deepstack_visual_indexes)

    @property
    def output_embeddings(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        tokens = torch.tensor(ids)
        if media is None:
            # Without media the pads are ordinary rows of the embedding, as in the reference.
            return Inputs(tokens, torch.arange(len(ids)).expand(3, -1))
        self._check(ids, media)
        sounds = media.tensors.get("feature_attention_mask")
        positions, _ = self._model.get_rope_index(
            tokens[None],
            media.tensors.get("image_grid_thw"),
            media.tensors.get("video_grid_thw"),
            attention_mask=torch.ones_like(tokens[None]),
            use_audio_in_video=(self._vision_start, self._audio_start) in pairwise(media.ids),
            audio_seqlens=None if sounds is None else sounds.sum(-1),
            second_per_grids=media.tensors.get("video_second_per_grid"),
        )
        places = torch.isin(tokens, torch.tensor(list(self._pads.values()))).nonzero().squeeze(1)
        return Inputs(tokens, positions[:, 0], media, places)

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> list[Computed]:
        ids = torch.cat([row.inputs.ids[row.start : row.end] for row in rows]).to(self.device)
        positions = torch.cat([row.inputs.positions[:, row.start : row.end] for row in rows], dim=1).to(self.device)
        embeddings = self._text.embed_tokens(ids)
        packing = Packing.of(rows, self.dtype, self.device)
        media = media_rows(rows, self._encode)
        if media is None:
            return run(self._text, embeddings, positions, packing)
        places, (seen, *taps) = media
        mask = torch.zeros(1, len(ids), dtype=torch.bool)
        mask[0, places] = True
        embeddings[mask[0].to(self.device)] = seen
        return run(self._text, embeddings, positions, packing, visual_pos_masks=mask, deepstack_visual_embeds=taps)

    @torch.inference_mode()
    def _encode(self, inputs: Inputs) -> Tensor:
        """Rows [1 + taps, M, hidden] of all media tokens of a prompt, where they stand."""
        assert inputs.media is not None and inputs.places is not None
        ids, tensors = inputs.ids[inputs.places], {n: t.to(self.device) for n, t in inputs.media.tensors.items()}
        shape = self._levels, len(ids), self.hidden_size
        rows = torch.zeros(shape, device=self.device, dtype=self.dtype)
        for kind, suffix in (("image", ""), ("video", "_videos")):
            if (pixels := tensors.get(f"pixel_values{suffix}")) is not None:
                encode = getattr(self._model.model, f"get_{kind}_features")
                features = encode(pixels, tensors[f"{kind}_grid_thw"], return_dict=True)
                levels = [torch.cat(level) for level in (features.pooler_output, *features.deepstack_features)]
                rows[:, (ids == self._pads[f"{kind}_pad"]).to(self.device)] = torch.stack(levels)
        if (sounds := tensors.get("input_features")) is not None:
            features = self._model.model.get_audio_features(sounds, tensors["feature_attention_mask"], return_dict=True)
            rows[0, (ids == self._pads["audio_pad"]).to(self.device)] = features.last_hidden_state
        return rows

    def _check(self, ids: Sequence[int], media: Media) -> None:
        # Positions are found by counting the tokens that open a sound, so these must agree as well as the pads.
        for name, token in (*self._pads.items(), ("audio_start", self._audio_start)):
            expected, found = media.ids.count(token), ids.count(token)
            if found != expected:
                raise BadRequest(
                    f"the prompt holds {found} <|{name}|> tokens where its media give {expected}; remove <|{name}|> "
                    "from the text, or read special tokens in it as plain text"
                )


def load_qwen3_omni(path: Path, device: torch.device, dtype: torch.dtype) -> Qwen3OmniBackbone:
    """Loads the thinker's weights, all of them; talker and code2wav are left on disk.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read.
    """
    check_experts(path)
    model = load_model(Qwen3OmniMoeThinkerForConditionalGeneration, path, device, dtype, unused=SPEAKING)
    if dtype == torch.float64:
        # The grouped product over experts, transformers' choice, exists for smaller floats only.
        model.set_experts_implementation("eager")
    return Qwen3OmniBackbone(model)
