"""Images and frames to patches and prompt ids, apart from the model that reads them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from vectors import FLASH, cases, release, tensors

from quaver.errors import BadMedia
from quaver.media import read_image, read_video
from quaver.models.processor import MediaProcessor

CASES = cases("clef-flash-tiny/cases")
PATCHES = sorted(tensors("clef-flash-tiny/media-tensors"))
IMAGES = [key.removesuffix("/patches_uint8") for key in PATCHES if ".mp4" not in key]
CLIPS = [key.removesuffix("/patches_uint8") for key in PATCHES if ".mp4" in key]


@cache
def stored() -> dict[str, Tensor]:
    return tensors("clef-flash-tiny/media-tensors")


def as_bytes(patches: Tensor) -> Tensor:
    return ((patches * 0.5 + 0.5) * 255).round().to(torch.uint8)


@pytest.mark.parametrize("name", IMAGES)
def test_image_patches(name: str) -> None:
    media = release().processor.encode([read_image(FLASH / name)], [])
    assert media is not None
    # A patch holds its pixels twice, once for each of two time steps.
    first, second = as_bytes(media.tensors["pixel_values"]).unflatten(1, (3, 2, 256)).unbind(2)
    assert torch.equal(first, second)
    assert torch.equal(first.flatten(1), stored()[f"{name}/patches_uint8"])


@pytest.mark.parametrize("name", CLIPS)
def test_clip_patches(name: str) -> None:
    processor = release().processor
    media = processor.encode([], [read_video(FLASH / name, processor.frames_of)])
    assert media is not None
    assert torch.equal(as_bytes(media.tensors["pixel_values_videos"]), stored()[f"{name}/patches_uint8"])


@pytest.mark.parametrize("case", [case for case in CASES if case["request"].get("videos")], ids=lambda case: case["id"])
def test_decoded_frames(case: dict[str, Any]) -> None:
    assert len(case["media"]["videos"]) == len(case["request"]["videos"])
    for expected in case["media"]["videos"]:
        video = read_video(FLASH / expected["file"], release().processor.frames_of)
        assert (video.fps, video.total) == (expected["fps"], expected["total_num_frames"])
        assert list(video.indices) == expected["frames_indices"]
        assert list(video.frames.shape) == expected["frames_shape"]
        assert hashlib.sha256(video.frames.tobytes()).hexdigest() == expected["frames_rgb_sha256"]


@pytest.mark.parametrize(
    ("total", "fps", "frames"),
    [(3, 8.0, [0, 1, 2]), (8, 8.0, [0, 2, 5, 7]), (40, 10.0, [0, 6, 11, 17, 22, 28, 33, 39])],
)
def test_two_frames_a_second_and_at_least_four(total: int, fps: float, frames: list[int]) -> None:
    assert release().processor.frames_of(total, fps) == frames


def test_threads_may_share_it() -> None:
    image = read_image(Image.new("RGB", (64, 48), "teal"))
    with ThreadPoolExecutor(4) as pool:
        media = list(pool.map(lambda n: release().processor.encode([image] * n, []), [1, 2, 1, 2, 3, 1]))
    tokens = [len(item.ids) for item in media if item]
    assert [tokens[0], tokens[1], tokens[0], tokens[1], tokens[4], tokens[0]] == tokens


def test_nothing_to_encode() -> None:
    assert MediaProcessor(Path("/nowhere")).encode([], []) is None


def test_the_item_that_cannot_be_used_is_named() -> None:
    good, bad = read_image(Image.new("RGB", (40, 40))), read_image(FLASH / "media/toowide_804x4.png")
    with pytest.raises(BadMedia, match="item 1 of images cannot be used: absolute aspect ratio") as refused:
        release().processor.encode([good, bad, good], [])
    assert refused.value.where == ("images", 1)


def test_a_release_without_processor_files_reads_text_only(tmp_path: Path) -> None:
    with pytest.raises(BadMedia, match="cannot read images, videos or sound"):
        MediaProcessor(tmp_path).encode([read_image(Image.new("RGB", (40, 40)))], [])
