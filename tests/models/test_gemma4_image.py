"""Tokens and patches of images for Gemma 4, beside transformers' own processors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma4Config, Gemma4ImageProcessor, Gemma4UnifiedConfig, Gemma4UnifiedImageProcessor

from quaver.errors import BadMedia, BadRelease
from quaver.models.gemma4_image import Gemma4Images, image_grid, image_tokens
from quaver.models.gemma4_knobs import IMAGE_BUDGETS

KINDS = {
    "gemma4": (Gemma4ImageProcessor, Gemma4Config),
    "gemma4_unified": (Gemma4UnifiedImageProcessor, Gemma4UnifiedConfig),
}
IMAGE, BOI, EOI = 258_880, 255_999, 258_882
#: Width, height, and tokens under each budget, as published.
TABLE = {
    (1920, 1080): (66, 120, 264, 527, 1100),
    (2560, 1440): (66, 120, 264, 527, 1100),
    (1440, 900): (60, 126, 273, 522, 1092),
    (1512, 982): (60, 126, 260, 551, 1066),
    (1024, 768): (63, 130, 266, 540, 1064),
    (1000, 1000): (64, 121, 256, 529, 1089),
    (3440, 1440): (60, 126, 250, 540, 1071),
    (2480, 3508): (63, 126, 266, 532, 1092),
}
SIDE = st.integers(1, 300)


@dataclass(frozen=True)
class Drawn:
    pixels: np.ndarray[Any, Any]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.pixels.tobytes()).hexdigest()


def drawn(width: int, height: int, seed: int = 0) -> Drawn:
    return Drawn(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@cache
def processor(kind: str) -> Any:
    return KINDS[kind][0]()


def tokenize(text: str) -> list[int]:
    """One id a character, # is the image token."""
    return [IMAGE if character == "#" else ord(character) for character in text]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(kind: str, tmp_path: Path) -> Path:
    processor(kind).save_pretrained(tmp_path)
    return tmp_path


def images(folder: Path, kind: str, limit: int = 8192, budget: int | None = None) -> Gemma4Images:
    return Gemma4Images(folder, KINDS[kind][1](), tokenize, "\n#\n", limit, budget)


@pytest.mark.parametrize(("size", "tokens"), TABLE.items(), ids=str)
def test_the_published_counts(size: tuple[int, int], tokens: tuple[int, ...]) -> None:
    assert tuple(image_tokens(*size, budget) for budget in IMAGE_BUDGETS) == tokens


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(width=SIDE, height=SIDE, budget=st.sampled_from(IMAGE_BUDGETS[:3]))
def test_counts_are_the_processors(kind: str, width: int, height: int, budget: int) -> None:
    check(kind, width, height, budget)


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (1, 3000), (3000, 1), (2000, 11), (9, 1999), (48, 48), (47, 2400), (845, 100)]
)
@pytest.mark.parametrize("budget", [70, 1120])
def test_long_and_tiny_images_too(kind: str, width: int, height: int, budget: int) -> None:
    check(kind, width, height, budget)


def check(kind: str, width: int, height: int, budget: int) -> None:
    made = processor(kind)(
        images=[torch.zeros(3, height, width, dtype=torch.uint8)], max_soft_tokens=budget, return_tensors="pt"
    )
    columns, rows = image_grid(width, height, budget)
    assert columns * rows == int(made["num_soft_tokens_per_image"][0]) <= budget
    side = 3 if kind == "gemma4" else 1  # positions of patches, or of tokens
    assert made["image_position_ids"][0].max(dim=0).values.tolist() == [columns * side - 1, rows * side - 1]


def test_a_prompt_has_the_tokens_and_patches_of_its_images(kind: str, folder: Path) -> None:
    shown = [drawn(64, 48), drawn(30, 90, 1)]
    media = images(folder, kind).encode("a\n#\n\n#\n", shown, 70)
    counts = [image_tokens(64, 48, 70), image_tokens(30, 90, 70)]
    expected = [*map(ord, "a\n"), BOI, *[IMAGE] * counts[0], EOI, *map(ord, "\n\n"), BOI, *[IMAGE] * counts[1], EOI, 10]
    assert list(media.ids) == expected
    assert [media.ids[start] for start, _ in media.digests] == [BOI, BOI]
    own = processor(kind)(
        images=[torch.from_numpy(image.pixels).movedim(-1, 0) for image in shown],
        max_soft_tokens=70,
        return_tensors="pt",
    )
    assert set(media.tensors) == {"pixel_values", "image_position_ids"}
    assert all(torch.equal(media.tensors[name], own[name]) for name in media.tensors)
    assert media.tensors["pixel_values"].dtype == torch.float32


def test_the_budget_of_the_release_of_the_server_and_of_the_request(kind: str, tmp_path: Path) -> None:
    KINDS[kind][0](max_soft_tokens=140).save_pretrained(tmp_path)
    released, served = images(tmp_path, kind), images(tmp_path, kind, budget=70)
    assert (released.budget, served.budget) == (140, 70)
    shown = [drawn(64, 48)]
    one, two, three = released.encode("#", shown), served.encode("#", shown), served.encode("#", shown, 140)
    assert len(one.ids) - 2 == image_tokens(64, 48, 140)
    assert len(two.ids) - 2 == image_tokens(64, 48, 70)
    assert (one.ids, one.digests) == (three.ids, three.digests)
    assert {digest for _, digest in one.digests}.isdisjoint(digest for _, digest in two.digests)


def test_too_many_tokens_are_found_before_pixels_are_prepared(kind: str, folder: Path) -> None:
    """The third of the images has no pixels at all."""

    class Unseen:
        digest = ""

        class pixels:
            shape = (100, 100, 3)

    shown: list[Any] = [drawn(10, 10), drawn(10, 10), Unseen()]
    with pytest.raises(BadMedia, match="images item 2: with it the media have over 190 tokens") as refused:
        images(folder, kind, limit=190).encode("###", shown, 70)
    assert refused.value.where == ("images", 2)


def test_what_cannot_be_read(kind: str, tmp_path: Path) -> None:
    with pytest.raises(BadMedia, match="cannot read images"):
        images(tmp_path, kind).encode("#", [drawn(4, 4)])
    with pytest.raises(BadRelease, match="stands not once"):
        Gemma4Images(tmp_path, KINDS[kind][1](), tokenize, "<image>", 100)
