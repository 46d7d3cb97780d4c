"""Images, clips and films to patches, features and prompt ids, apart from the model that reads them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.version import Version
from vectors import OMNI, release

from quaver.errors import BadMedia
from quaver.media import AS_STORED, Audio, Film, Image, read_audio, read_film, read_image
from quaver.models import omni_processor
from quaver.models.backbone import Media
from quaver.models.omni_processor import OmniProcessor

MEDIA = OMNI / "media"
NOISE = np.random.default_rng(7).normal(scale=0.1, size=48_000).astype(np.float32)
IMAGE = Image(np.random.default_rng(8).integers(0, 256, (40, 64, 3), dtype=np.uint8))
FILM = read_film(MEDIA / "sound_96x64.mp4")
processor = release(folder=OMNI).processor
assert isinstance(processor, OmniProcessor)


def clip(samples: int) -> Audio:
    return Audio(NOISE[:samples])


def encode(images: list[Image], clips: list[Audio], films: list[Film]) -> Media:
    media = processor.encode(images, clips, films)
    assert isinstance(media, Media)
    return media


def test_nothing_to_encode() -> None:
    assert OmniProcessor(Path("/nowhere")).encode([], [], []) is None


def test_a_folder_without_processor_files_reads_text_only(tmp_path: Path) -> None:
    with pytest.raises(BadMedia, match="cannot read images, videos or sound"):
        OmniProcessor(tmp_path).encode([], [clip(1000)], [])


@pytest.mark.parametrize(("samples", "tokens"), [(201, 1), (1_280, 1), (1_440, 2), (16_000, 13), (48_000, 39)])
def test_thirteen_tokens_a_second_of_sound(samples: int, tokens: int) -> None:
    assert len(encode([], [clip(samples)], []).ids) == tokens + 3  # start, end and newline


@pytest.mark.parametrize(
    ("pixels", "tokens"),
    [((1, 1), 64), ((3, 3), 64), ((256, 256), 64), ((1024, 1024), 1024), ((3000, 3000), 1024)],
)
def test_images_are_brought_to_64_to_1024_tokens(pixels: tuple[int, int], tokens: int) -> None:
    assert len(encode([Image(np.zeros((*pixels, 3), np.uint8))], [], []).ids) == tokens + 3


def test_an_image_of_three_rows_keeps_its_colours() -> None:
    """Three rows look like three colours to who guesses."""
    red = np.zeros((3, 3, 3), np.uint8)
    red[..., 0] = 255
    patches = encode([Image(red)], [], []).tensors["pixel_values"].unflatten(1, (3, -1))
    assert (patches[:, 0] == 1).all() and (patches[:, 1:] == -1).all()


def test_films_are_heard_when_all_have_a_soundtrack() -> None:
    silent = replace(FILM, soundtrack=None)
    assert "input_features" not in encode([], [], [silent]).tensors
    assert "input_features" not in encode([], [], [FILM, silent]).tensors
    assert encode([], [], [FILM, FILM]).tensors["input_features"].shape[0] == 2
    beside = encode([], [clip(9_000)], [FILM, silent])
    assert beside.tensors["input_features"].shape[0] == 1


def test_a_soundtrack_is_encoded_like_a_clip() -> None:
    assert FILM.soundtrack is not None
    apart = encode([], [Audio(FILM.soundtrack)], []).tensors["input_features"]
    assert torch.equal(apart, encode([], [], [FILM]).tensors["input_features"])


def test_every_item_is_known_by_where_it_begins_and_what_it_holds() -> None:
    images = [IMAGE, read_image(MEDIA / "square_256.png", rule=AS_STORED)]
    clips, films = [clip(9_600), clip(48_000)], [FILM]
    media = encode(images, clips, films)
    parts = [encode([image], [], []) for image in images]
    parts += [encode([], [sound], []) for sound in clips]
    parts += [encode([], [], [film]) for film in films]
    assert media.ids == tuple(token for part in parts for token in part.ids)
    starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])]).tolist()
    assert [position for position, _ in media.digests] == starts
    assert len({digest for _, digest in media.digests}) == len(parts)


def test_a_clip_beside_a_longer_one_is_another_item() -> None:
    """Its last features differ, by the padding; whatever is kept of it must not be mistaken."""
    alone, beside = encode([], [clip(20_800)], []), encode([], [clip(20_800), clip(40_800)], [])
    length = int(alone.tensors["feature_attention_mask"].sum())
    features = [media.tensors["input_features"][0, :, :length] for media in (alone, beside)]
    assert not torch.equal(*features)
    assert alone.digests[0] != beside.digests[0]
    again = encode([], [clip(20_800), Audio(NOISE[:40_800][::-1].copy())], [])
    assert torch.equal(again.tensors["input_features"][0], beside.tensors["input_features"][0])
    assert again.digests[0] == beside.digests[0]


@pytest.mark.parametrize("samples", [1, 160, 200])
def test_a_clip_that_is_too_short_is_named(samples: int) -> None:
    with pytest.raises(BadMedia, match=f"item 0 of audio cannot be used: it has {samples} samples") as refused:
        encode([IMAGE], [clip(samples)], [])
    assert refused.value.where == ("audio", 0)
    # Beside a longer one it is padded, as in the reference.
    assert len(encode([], [clip(samples), clip(1_000)], []).digests) == 2


def test_a_film_whose_sound_is_too_short_is_named() -> None:
    with pytest.raises(BadMedia, match="item 0 of videos cannot be used: it has 100 samples") as refused:
        encode([], [], [replace(FILM, soundtrack=NOISE[:100])])
    assert refused.value.where == ("videos", 0)


def test_an_image_that_is_too_wide_is_named() -> None:
    wide = read_image(MEDIA / "toowide_804x4.png", rule=AS_STORED)
    with pytest.raises(BadMedia, match="item 1 of images cannot be used: absolute aspect ratio") as refused:
        encode([IMAGE, wide], [read_audio(MEDIA / "short_16k.wav")], [])
    assert refused.value.where == ("images", 1)


def test_threads_may_share_it() -> None:
    counts = [1, 2, 1, 3, 2, 1]
    with ThreadPoolExecutor(4) as pool:
        media = list(pool.map(lambda n: encode([], [clip(16_000)] * n, []), counts))
    assert [len(item.ids) for item in media] == [16 * n for n in counts]


def test_films_with_sound_are_refused_where_transformers_cannot_place_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omni_processor, "HEARS_FILMS", Version("99"))
    with pytest.raises(BadMedia, match="need transformers 99 or newer, and this server has"):
        encode([], [], [FILM])
    assert encode([], [], [Film(FILM.frames, None)])
