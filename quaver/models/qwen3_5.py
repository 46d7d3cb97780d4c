"""The Qwen3.5 backbone of clef and clef-flash, through transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Media


class Qwen35Backbone:
    """A loaded ``Qwen3_5ForConditionalGeneration``; see ``Backbone`` for the contract.

    Text-only prompts go to the inner language model with plain positions, as the Clef reference does;
    prompts with media go through the multimodal model, whose positions follow the media grids.
    """

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        config: Any = model.config
        self.hidden_size: int = config.text_config.hidden_size
        self._image_id: int = config.image_token_id
        self._video_id: int = config.video_token_id
        self._merge: int = config.vision_config.spatial_merge_size**2

    @property
    def output_embeddings(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def check(self, ids: Sequence[int], media: Media | None) -> None:
        # Without media these tokens are ordinary rows of the embedding, as in the reference.
        if media is None:
            return
        for name, token in (("image", self._image_id), ("video", self._video_id)):
            grid = media.tensors.get(f"{name}_grid_thw")
            expected = 0 if grid is None else int(grid.prod(-1).sum()) // self._merge
            found = ids.count(token)
            if found != expected:
                raise BadRequest(
                    f"the prompt holds {found} {name} tokens where its media give {expected}; remove <|{name}_pad|> "
                    "from the text, or read special tokens in it as plain text"
                )

    @torch.inference_mode()
    def hidden(self, ids: Sequence[int], media: Media | None = None) -> Tensor:
        self.check(ids, media)
        input_ids = torch.tensor([ids], device=self.device)
        # One prompt has no padding; leaving the mask out lets attention take its causal fast path.
        if media is None:
            output = self._model.model.language_model(input_ids=input_ids, use_cache=False)
        else:
            kinds = (input_ids == self._image_id).long() + 2 * (input_ids == self._video_id).long()
            tensors = {name: tensor.to(self.device) for name, tensor in media.tensors.items()}
            output = self._model.model(input_ids=input_ids, mm_token_type_ids=kinds, use_cache=False, **tensors)
        rows: Tensor = output.last_hidden_state[0]
        return rows


def load_qwen3_5(path: Path, device: torch.device, dtype: torch.dtype) -> Qwen35Backbone:
    """Loads the backbone's weights, all of them and no others.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read.
    """
    factory: Any = Qwen3_5ForConditionalGeneration
    try:
        model, report = factory.from_pretrained(
            path,
            dtype=dtype,
            device_map=None if device.type == "cpu" else {"": str(device)},
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers and safetensors document no common base
        raise BadRelease(f"the backbone in {path} cannot be loaded: {error}") from error
    for problem in ("missing", "unexpected", "mismatched"):
        # A mismatch is reported as name, shape found and shape expected.
        names = sorted(key if isinstance(key, str) else key[0] for key in report[f"{problem}_keys"])
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BadRelease(f"the backbone in {path} has {problem} tensors: {names[0]}{more}")
    return Qwen35Backbone(model)
