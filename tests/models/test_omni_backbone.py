"""The Omni thinker read in parts and in company."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen3OmniMoeThinkerForConditionalGeneration
from vectors import OMNI, cases, release, request

from quaver.errors import BadRequest
from quaver.media import AS_STORED, Audio, Film, Image, read_audio, read_film, read_image
from quaver.models.backbone import Inputs, Media, Row
from quaver.models.omni_processor import OmniProcessor

CASES = {case["id"]: case for case in cases("clef-omni-tiny/cases")}
NAMES = ["text-plain", "image-2", "audio-2-lengths", "video-sound", "mixed-image-audio-video-sound"]
backbone, processor = release(folder=OMNI).backbone, release(folder=OMNI).processor
assert isinstance(processor, OmniProcessor)


@cache
def media_of(name: str) -> Media | None:
    asked = request(CASES[name]["request"], OMNI)
    return processor.encode(
        [read_image(source, rule=AS_STORED) for source in asked.images],
        [read_audio(source) for source in asked.audio],
        [read_film(source) for source in asked.videos],
    )


def inputs(name: str) -> Inputs:
    return backbone.prepare(CASES[name]["input_ids"], media_of(name))


@cache
def whole(name: str) -> Tensor:
    prompt = inputs(name)
    return backbone.forward([Row(prompt, 0, len(prompt))])[0].hidden


@cache
def theirs() -> Any:
    """transformers' own model, read as it comes."""
    return Qwen3OmniMoeThinkerForConditionalGeneration.from_pretrained(OMNI, dtype=torch.float32).eval()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_media_are_read_as_transformers_reads_them(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def pixels(*shape: int) -> Any:
        return draw.integers(0, 256, (*shape, *draw.integers(20, 400, 2), 3), dtype=np.uint8)

    def samples() -> Any:
        return draw.normal(scale=0.1, size=draw.integers(300, 60_000)).astype(np.float32)

    heard = bool(seed % 2)
    images, clips = [[make() for _ in range(draw.integers(0, 3))] for make in (lambda: Image(pixels()), samples)]
    films = [Film(pixels(2 * int(draw.integers(1, 4))), samples() if heard else None) for _ in range(seed % 3)]
    media = processor.encode(images, [Audio(clip) for clip in clips], films)
    text = draw.integers(0, 2_000, 30).tolist()
    prompt = backbone.prepare([*text[:10], *(media.ids if media else ()), *text[10:]], media)
    [ours] = backbone.forward([Row(prompt, 0, len(prompt))])
    ids = prompt.ids[None]
    with torch.inference_mode():
        expected = theirs().model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            use_audio_in_video=heard and bool(films),
            **(media.tensors if media else {}),
        )
    torch.testing.assert_close(ours.hidden, expected.last_hidden_state[0], atol=1e-4, rtol=1e-4)


def in_parts(prompt: Inputs, ends: list[int]) -> Tensor:
    past: tuple[Tensor, ...] = ()
    parts, start = [], 0
    for end in ends:
        [computed] = backbone.forward([Row(prompt, start, end, past, keep=end)])
        past, start = (*past, computed.kept), end
        parts.append(computed.hidden)
    return torch.cat(parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [50, 97, 300])
def test_parts_give_what_the_whole_gives(name: str, step: int) -> None:
    prompt = inputs(name)
    torch.testing.assert_close(
        in_parts(prompt, [*range(step, len(prompt), step), len(prompt)]), whole(name), atol=1e-4, rtol=1e-4
    )


def test_rows_in_company_are_read_as_alone() -> None:
    prompts = [inputs(name) for name in NAMES]
    together = backbone.forward([Row(prompt, 0, len(prompt)) for prompt in prompts])
    for name, computed in zip(NAMES, together, strict=True):
        torch.testing.assert_close(computed.hidden, whole(name), atol=1e-4, rtol=1e-4)


def test_media_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, calls = inputs("mixed-image-audio-video-sound"), []
    encode = backbone._encode  # type: ignore[attr-defined]
    monkeypatch.setattr(backbone, "_encode", lambda inputs: calls.append(inputs) or encode(inputs))
    in_parts(prompt, [60, 200, 350, len(prompt)])
    assert len(calls) == 1


def test_media_change_what_follows_and_nothing_before() -> None:
    """The same places with other sounds and pictures."""
    first, second = inputs("mixed-image-audio-video-sound"), inputs("mixed-image-audio-video-sound")
    assert second.media is not None and second.places is not None
    tensors = {
        name: tensor * -1 if tensor.is_floating_point() else tensor for name, tensor in second.media.tensors.items()
    }
    second.media = Media(second.media.ids, tensors)
    rows = [backbone.forward([Row(prompt, 0, len(prompt))])[0].hidden for prompt in (first, second)]
    begin = int(second.places[0])
    torch.testing.assert_close(rows[0][:begin], rows[1][:begin])
    assert (rows[0][begin:] - rows[1][begin:]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("token", ["image_token_id", "audio_token_id", "video_token_id"])
def test_a_placeholder_without_its_medium_is_refused(token: str) -> None:
    ids = CASES["mixed-image-audio-video-sound"]["input_ids"]
    surplus = [*ids[:-5], getattr(backbone._model.config, token), *ids[-5:]]  # type: ignore[attr-defined]
    with pytest.raises(BadRequest, match="read special tokens in it as plain text"):
        backbone.prepare(surplus, media_of("mixed-image-audio-video-sound"))


@pytest.mark.parametrize("token", ["audio_start_token_id", "vision_start_token_id"])
def test_a_start_token_in_the_text_moves_no_position(token: str) -> None:
    ids = CASES["mixed-image-audio-video-sound"]["input_ids"]
    spelled = [*ids[:-5], getattr(backbone._model.config, token), *ids[-4:]]  # type: ignore[attr-defined]
    media = media_of("mixed-image-audio-video-sound")
    assert torch.equal(backbone.prepare(spelled, media).positions, backbone.prepare(ids, media).positions)


def test_images_of_the_same_tokens_and_another_shape_have_other_positions() -> None:
    """Positions are kept by what they depend on, and the tokens alone do not say it."""
    wide, tall = (
        processor.encode([Image(np.zeros((*size, 3), np.uint8))], [], []) for size in ((256, 512), (512, 256))
    )
    assert wide is not None and tall is not None and wide.ids == tall.ids
    first, second = (backbone.prepare([7, *media.ids, 7], media).positions for media in (wide, tall))
    inside = slice(2, -2)  # between the tokens that begin and end the image
    assert first[1:, inside].amax(-1).tolist() == second[1:, inside].amax(-1).tolist()[::-1]
    assert not torch.equal(first, second)
