"""The LFM2-VL backbone beside transformers' own forward: pictures, parts and company."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from liquid_tiny import FACTOR, IMAGE, tiny_lfm2_vl

from quaver.errors import BadRequest
from quaver.models.backbone import Media, Row
from quaver.models.lfm2_vl import Lfm2VlBackbone

#: Patches of two pictures, rows and columns.
SHAPES = torch.tensor([[4, 6], [2, 4]])


@cache
def model() -> Any:
    return tiny_lfm2_vl()


@cache
def backbone() -> Lfm2VlBackbone:
    return Lfm2VlBackbone(deepcopy(model()))


@cache
def tensors() -> dict[str, torch.Tensor]:
    patches = int(SHAPES.prod(-1).max())
    channels = 3 * model().config.vision_config.patch_size ** 2
    return {
        "pixel_values": torch.randn(len(SHAPES), patches, channels, generator=torch.Generator().manual_seed(7)),
        "spatial_shapes": SHAPES,
        "pixel_attention_mask": (torch.arange(patches) < SHAPES.prod(-1, keepdim=True)).long(),
    }


def prompt(seed: int, pictures: bool) -> list[int]:
    words = torch.randint(0, 90, (37,), generator=torch.Generator().manual_seed(seed)).tolist()
    shown = [token for count in (SHAPES // FACTOR).prod(-1).tolist() for token in [91, *[IMAGE] * count, 92]]
    return [*words[:4], *(shown if pictures else []), *words[4:]]


def own(ids: list[int], **media: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model()(input_ids=torch.tensor([ids]), **media).logits[0]


def test_pictures_in_parts_and_in_company_equal_the_models_own_forward() -> None:
    shown, told = prompt(1, pictures=True), prompt(2, pictures=False)
    seen = backbone().prepare(shown, Media(tuple(shown), tensors()))
    read = backbone().prepare(told)
    cut, end = 9, len(shown)  # inside the first picture
    first, text = backbone().forward([Row(seen, 0, cut, cuts=(cut,), keep=cut), Row(read, 0, len(told))])
    [rest] = backbone().forward([Row(seen, cut, end, past=(first.kept,), state=first.snapshots[cut])])
    table = backbone().output_embeddings.T
    both = torch.cat([first.hidden, rest.hidden]) @ table
    assert torch.allclose(both, own(shown, **tensors()), atol=2e-4)
    assert torch.allclose(text.hidden @ table, own(told), atol=2e-4)
    other = {**tensors(), "pixel_values": -tensors()["pixel_values"]}
    assert not torch.allclose(both[-1], own(shown, **other)[-1], atol=1e-2)


def test_image_tokens_that_no_picture_has() -> None:
    ids = prompt(1, pictures=True)
    with pytest.raises(BadRequest, match="holds 9 <image> tokens where its media give 8"):
        backbone().prepare([*ids, IMAGE], Media(tuple(ids), tensors()))
