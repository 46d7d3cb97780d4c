"""The Qwen3-Omni thinker of clef-omni, through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3OmniMoeThinkerForConditionalGeneration

from quaver.models.backbone import Computed, Inputs, Media, Pause, Row
from quaver.models.experts import check_experts
from quaver.models.packed import NO_MASKS, Packing, laid_out, pack, run
from quaver.models.places import check_places, media_rows
from quaver.models.weights import load_model

#: Parts of the published checkpoint that speak; a decision needs the thinker alone.
SPEAKING = ("talker.", "code2wav.")
GRIDS = ("image_grid_thw", "video_grid_thw", "video_second_per_grid")

Numbers = tuple[float, ...]
Grids = tuple[Numbers, ...]


class Qwen3OmniBackbone:
    """A loaded ``Qwen3OmniMoeThinkerForConditionalGeneration``; see ``Backbone`` for the contract.

    Pictures enter the text model more than once: as embeddings, and added to the rows after its first
    layers (deep stack). So ``Inputs.rows`` has [1 + taps, M, hidden]; sounds have zeros in the taps.
    """

    resumable = True

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        self._text: Any = model.get_decoder()
        pack(self._text)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        config: Any = model.config
        self.hidden_size: int = config.text_config.hidden_size
        self._pads = {f"<|{kind}_pad|>": getattr(config, f"{kind}_token_id") for kind in ("image", "audio", "video")}
        self._vision_start: int = config.vision_start_token_id
        self._audio_start: int = config.audio_start_token_id
        # A film takes a while, and questions read apart share their media.
        self._media_positions = lru_cache(maxsize=16)(self._positions_of)
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
        check_places(ids, media.ids, self._pads)
        start = ids.index(media.ids[0])
        of_media = start + self._media_positions(media.ids, *_grids_and_lengths(media))
        rest = of_media.max() + 1 + torch.arange(len(ids) - start - len(media.ids))
        positions = torch.cat([torch.arange(start).expand(3, -1), of_media, rest.expand(3, -1)], dim=1)
        places = torch.isin(tokens, torch.tensor(list(self._pads.values()))).nonzero().squeeze(1)
        return Inputs(tokens, positions, media, places)

    def _positions_of(
        self, ids: tuple[int, ...], images: Grids, films: Grids, seconds: Numbers, sounds: Numbers
    ) -> Tensor:
        """Positions [3, len(ids)] of the media tokens ``ids``, as if they began the prompt."""
        tokens = torch.tensor([ids])
        positions, _ = self._model.get_rope_index(
            tokens,
            torch.tensor(images) if images else None,
            torch.tensor(films) if films else None,
            attention_mask=torch.ones_like(tokens),
            use_audio_in_video=(self._vision_start, self._audio_start) in pairwise(ids),
            audio_seqlens=torch.tensor(sounds),
            second_per_grids=torch.tensor(seconds),
        )
        found: Tensor = positions[:, 0]
        return found

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        ids, positions = laid_out(rows, self.device)
        embeddings = self._text.embed_tokens(ids)
        inputs = {"inputs_embeds": embeddings[None], "position_ids": positions[:, None], "attention_mask": NO_MASKS}
        if media := media_rows(rows, self._encode):
            places, (seen, *taps) = media
            mask = torch.zeros(1, len(ids), dtype=torch.bool)
            mask[0, places] = True
            embeddings[places.to(self.device)] = seen
            inputs |= {"visual_pos_masks": mask, "deepstack_visual_embeds": taps}
        return run(self._text, Packing.of(rows, self.dtype, self.device, pause), **inputs)

    @torch.inference_mode()
    def _encode(self, inputs: Inputs) -> Tensor:
        """Rows [1 + taps, M, hidden] of all media tokens of a prompt, where they stand."""
        assert inputs.media is not None and inputs.places is not None
        ids, tensors = inputs.ids[inputs.places], {n: t.to(self.device) for n, t in inputs.media.tensors.items()}
        shape = self._levels, len(ids), self.hidden_size
        rows = torch.zeros(shape, device=self.device, dtype=self.dtype)
        for kind, suffix in (("image", ""), ("video", "_videos")):
            if (pixels := tensors.get(f"pixel_values{suffix}")) is not None:
                encode = getattr(self._model, f"get_{kind}_features")
                features = encode(pixels, tensors[f"{kind}_grid_thw"], return_dict=True)
                levels = [_joined(level) for level in (features.pooler_output, *features.deepstack_features)]
                rows[:, (ids == self._pads[f"<|{kind}_pad|>"]).to(self.device)] = torch.stack(levels)
        if (sounds := tensors.get("input_features")) is not None:
            features = self._model.get_audio_features(sounds, tensors["feature_attention_mask"], return_dict=True)
            rows[0, (ids == self._pads["<|audio_pad|>"]).to(self.device)] = features.last_hidden_state
        return rows


def _grids_and_lengths(media: Media) -> tuple[Grids, Grids, Numbers, Numbers]:
    """What positions depend on besides the tokens: grids of images and films, seconds between the grids of a
    film, features of each sound; hashable."""
    empty = torch.empty(0)
    images, films, seconds = (media.tensors.get(name, empty).tolist() for name in GRIDS)
    sounds = media.tensors.get("feature_attention_mask", empty[:, None]).sum(-1).tolist()
    return tuple(map(tuple, images)), tuple(map(tuple, films)), tuple(seconds), tuple(sounds)


def _joined(rows: Tensor | Sequence[Tensor]) -> Tensor:
    """Rows [n, hidden] of all pictures; transformers before 5.20 splits the deep stack's not by picture."""
    return rows if isinstance(rows, Tensor) else torch.cat(list(rows))


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
