"""Gemma 4 and Gemma 4 unified, which sees without an encoder, through transformers: text and images."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4UnifiedForCausalLM,
    Gemma4UnifiedForConditionalGeneration,
)

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Inputs, Pause, Row
from quaver.models.gemma import GemmaBackbone
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.models.gemma4_vision import adjust, image_features
from quaver.models.packed import Packing
from quaver.models.weights import load_model

#: By the type of a release's configuration. Those of text alone are here for their per-layer embeddings.
CLASSES: dict[str, Any] = {
    "gemma4": Gemma4ForConditionalGeneration,
    "gemma4_text": Gemma4ForCausalLM,
    "gemma4_unified": Gemma4UnifiedForConditionalGeneration,
    "gemma4_unified_text": Gemma4UnifiedForCausalLM,
}
#: Parts that hear; what is read here is text and images.
HEARING = ("model.audio_tower.", "model.embed_audio.")
#: The knobs of a mask; the others are of the vision path and of the release's weights.
MASK_KNOBS = ("bidirectional", "bidirectional_full_layers", "sliding_window")


class Gemma4Backbone(GemmaBackbone):
    """A loaded Gemma 4; see ``Backbone`` for the contract.

    Layers without a window read an image causally. In those with a window the tokens of an image see each
    other, also when it is longer than the window, which bounds only what lies before a token. Releases
    without ``use_bidirectional_attention`` read images causally in all layers: ``sees_two_ways`` is False.
    ``knobs`` change that.

    Raises BadRelease as ``ChatBackbone`` does, and BadRequest for a knob that this model does not have.
    """

    def __init__(self, model: Any, knobs: Gemma4Knobs | None = None) -> None:
        config, text = model.config, model.config.get_text_config()
        self.config: Any = config
        self._window: int = text.sliding_window
        self.sees_two_ways: bool = text.use_bidirectional_attention == "vision"
        sees = getattr(config, "vision_config", None) is not None
        kinds = ("image", "video", "audio") if sees else ()
        placeholders = {f"<|{kind}|>": getattr(config, f"{kind}_token_id") for kind in kinds}
        self._per_layer = bool(getattr(text, "hidden_size_per_layer_input", 0))
        self.knobs = Gemma4Knobs()
        # Compares with the release as it is.
        super().__init__(model, placeholders, config.image_token_id if sees else None, text.pad_token_id)
        self.knobs = knobs or self.knobs
        self._check_masks(self.knobs)
        adjust(model.model, self.knobs)

    @property
    def facts(self) -> dict[str, bool | int | None]:
        """The knobs as JSON values, and what this release does where they leave it to the release."""
        return self.knobs.facts() | {
            "bidirectional": self.two_ways,
            "sliding_window": self.knobs.sliding_window or self._window,
        }

    def under(self, knobs: Gemma4Knobs) -> Gemma4Backbone:
        """The same weights under another mask. Raises BadRequest for knobs that are not of the mask."""
        for name, value in knobs.facts().items():
            if name not in MASK_KNOBS and value != getattr(self.knobs, name):
                raise BadRequest(f"{name}: it is fixed when the model loads; load it with {name}={value}", (name,))
        self._check_masks(knobs)
        other = copy.copy(self)
        other.knobs = knobs
        return other

    @property
    def two_ways(self) -> bool:
        return self.sees_two_ways and self.knobs.bidirectional

    def _packing(self, rows: Sequence[Row], pause: Pause | None) -> Packing:
        return Packing.of(
            rows, self.dtype, self.device, pause, self.knobs.sliding_window, self.knobs.bidirectional_full_layers
        )

    def _embedded(self, rows: Sequence[Row], ids: Tensor) -> dict[str, Tensor]:
        inputs = super()._embedded(rows, ids)
        if self._per_layer:
            inputs["per_layer_inputs"] = self._text.get_per_layer_inputs(self._readable(ids)[None])
        return inputs

    @torch.inference_mode()
    def encode(self, inputs: Inputs) -> Tensor:
        assert inputs.media is not None
        return image_features(self._model.model, inputs.media.tensors).to(self.dtype)[None]

    def _check_masks(self, knobs: Gemma4Knobs) -> None:
        if self.sees_two_ways:
            return
        for name in ("bidirectional", "bidirectional_full_layers"):
            if getattr(knobs, name) != getattr(Gemma4Knobs(), name):
                raise BadRequest(
                    f"{name}: this release reads images causally (its use_bidirectional_attention is not vision), "
                    "so there is nothing to change; leave the knob out",
                    (name,),
                )


def load_gemma4(
    path: Path, device: torch.device, dtype: torch.dtype, knobs: Gemma4Knobs | None = None
) -> Gemma4Backbone:
    """Loads the weights of a Gemma 4, all but those that hear, which are left on disk.

    Raises BadRelease for missing, unexpected or misshapen tensors and for files that cannot be read, and
    BadRequest for a knob that this release does not have.
    """
    try:
        config: Any = AutoConfig.from_pretrained(path, local_files_only=True)
    except Exception as error:  # transformers documents no common base
        raise BadRelease(f"the configuration in {path} cannot be read: {error}") from error
    if hasattr(config, "audio_config"):
        config.audio_config = None
    model = load_model(CLASSES[config.model_type], path, device, dtype, unused=HEARING, config=config)
    if dtype == torch.float64:
        # The grouped product over experts, transformers' choice, exists for smaller floats only.
        model.set_experts_implementation("eager")
    return Gemma4Backbone(model, knobs)
