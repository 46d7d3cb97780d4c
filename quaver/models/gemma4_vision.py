"""The vision path of Gemma 4, transformers' own, and what knobs change of it.

A tower of layers (``gemma4``) or a patch embedder of three LayerNorms and a product (``gemma4_unified``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from quaver.errors import BadRequest
from quaver.models.gemma4_knobs import Gemma4Knobs


class Float32LayerNorm(nn.LayerNorm):
    """A LayerNorm in float32, weights too, rounded once to the precision of its input."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = (None if x is None else x.float() for x in (self.weight, self.bias))
        return functional.layer_norm(input.float(), self.normalized_shape, weight, bias, self.eps).to(input.dtype)


def adjust(model: Any, knobs: Gemma4Knobs) -> None:
    """Makes the vision path of ``model``, transformers' ``Gemma4Model`` or its unified twin, follow ``knobs``.

    Raises BadRequest for a knob that it does not have.
    """
    path = [part for name in ("vision_tower", "embed_vision") if (part := getattr(model, name, None)) is not None]
    norms = [module for part in path for module in part.modules() if type(module) is nn.LayerNorm]
    if knobs.fp32_layernorm_statistics and not norms:
        raise BadRequest(
            "fp32_layernorm_statistics: this model sees without LayerNorms, its RMSNorms are computed in float32 "
            "already; leave the knob out",
            ("fp32_layernorm_statistics",),
        )
    for name in ("fp32_vision_embedder", "image_budget"):
        if getattr(knobs, name) and not path:
            raise BadRequest(f"{name}: this model reads text; leave the knob out", (name,))
    if knobs.fp32_layernorm_statistics:
        for norm in norms:
            norm.__class__ = Float32LayerNorm
    if knobs.fp32_vision_embedder:
        for part in path:
            part.float()


def image_features(model: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """Soft tokens [M, hidden] of all images of a prompt, in their order, in the precision of the vision path.

    ``tensors`` are ``pixel_values`` [images, patches, values] and ``image_position_ids`` [images, patches, 2]
    of the release's image processor, in its float32: rounding to the model's precision, where the vision path
    is in that, is transformers' to do.
    """
    pixels, positions = (tensors[name] for name in ("pixel_values", "image_position_ids"))
    device = next(model.parameters()).device
    features = model.get_image_features(pixels.to(device), positions.to(device), return_dict=True)
    return torch.cat(features.pooler_output)
