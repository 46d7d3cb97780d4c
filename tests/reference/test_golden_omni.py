"""Every request of the tiny clef-omni release, from its body to probabilities, against the reference's numbers."""

import hashlib
from functools import cache
from typing import Any

import pytest
import torch
from vectors import OMNI, cases, deviation, read, release, request, tokenizer

from quaver.errors import BadMedia, BadRequest, TooLong
from quaver.media import AS_STORED, read_audio, read_film, read_image
from quaver.models.backbone import Media, Row
from quaver.models.omni_processor import OmniProcessor
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.encoded import Encoded
from quaver.prompts.tokenizer import SpecialTokens

CASES = cases("clef-omni-tiny/cases")
ANSWERED = [case for case in CASES if "logits_fp32" in case]
WITH_MEDIA = [case for case in ANSWERED if "media" in case]
REFUSED = {
    "err-schema-too-long": TooLong,
    "err-image-aspect": BadMedia,
    "err-audio-is-video": BadMedia,
    "err-video-is-wav": BadMedia,
    "err-audio-pad-in-state": BadRequest,
}


def name(case: dict[str, Any]) -> str:
    return str(case["id"])


def find(wanted: str) -> dict[str, Any]:
    [case] = [case for case in CASES if case["id"] == wanted]
    return case


@cache
def media_of(wanted: str) -> Media | None:
    asked = request(find(wanted)["request"], OMNI)
    processor = release(folder=OMNI).processor
    assert isinstance(processor, OmniProcessor)
    return processor.encode(
        [read_image(source, rule=AS_STORED) for source in asked.images],
        [read_audio(source) for source in asked.audio],
        [read_film(source) for source in asked.videos],
    )


def prepare(case: dict[str, Any], special_tokens: SpecialTokens = "reference") -> tuple[Encoded, Media | None]:
    media = media_of(case["id"])
    prompt = ClefPrompt(tokenizer(OMNI / "tokenizer.json"), case.get("max_length", 64_000), special_tokens)
    return prompt.encode(request(case["request"], OMNI), media.ids if media else ()), media


@pytest.mark.parametrize("case", ANSWERED, ids=name)
def test_ids_and_spans(case: dict[str, Any]) -> None:
    encoded, _ = prepare(case)
    assert list(encoded.ids) == case["input_ids"]
    for mine, theirs in zip(encoded.questions, case["questions"], strict=True):
        assert mine.type == theirs["type"]
        assert list(mine.span) == theirs["question_span"]
        assert list(map(list, mine.option_spans)) == theirs["option_spans"]
        assert list(mine.option_ids) == theirs["option_ids"]


@pytest.mark.parametrize("case", ANSWERED, ids=name)
def test_probabilities(case: dict[str, Any]) -> None:
    logits = read(*prepare(case), folder=OMNI)
    assert deviation(logits, case["logits_fp32"]) < 2e-4
    assert deviation([row.softmax(-1) for row in logits], case["probabilities_fp32"]) < 1e-4


@pytest.mark.parametrize("case", ANSWERED[::4], ids=name)
def test_a_last_row_before_the_head(case: dict[str, Any]) -> None:
    """Tells errors of the backbone from errors of the head."""
    backbone = release(folder=OMNI).backbone
    inputs = backbone.prepare(case["input_ids"], media_of(case["id"]))
    [computed] = backbone.forward([Row(inputs, 0, len(inputs))])
    torch.testing.assert_close(computed.hidden[-1], torch.tensor(case["final_hidden_last_token"]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("case", WITH_MEDIA, ids=name)
def test_positions(case: dict[str, Any]) -> None:
    inputs = release(folder=OMNI).backbone.prepare(case["input_ids"], media_of(case["id"]))
    assert inputs.positions.tolist() == case["media"]["position_ids"]


@pytest.mark.parametrize("case", WITH_MEDIA, ids=name)
def test_encoded_media(case: dict[str, Any]) -> None:
    media = media_of(case["id"])
    assert media is not None
    expected = case["media"]
    for grid in ("image_grid_thw", "video_grid_thw", "video_second_per_grid"):
        assert (media.tensors[grid].tolist() if grid in media.tensors else None) == expected.get(grid)
    for pixels in {"pixel_values", "pixel_values_videos"} & set(expected):
        as_bytes = ((media.tensors[pixels] * 0.5 + 0.5) * 255).round().to(torch.uint8)
        assert hashlib.sha256(as_bytes.numpy().tobytes()).hexdigest() == expected[pixels]["sha256_uint8"]
    if features := expected.get("input_features"):
        first = media.tensors["input_features"][0].double()
        assert list(media.tensors["input_features"].shape) == features["shape"]
        assert media.tensors["feature_attention_mask"].sum(-1).tolist() == expected["feature_lengths"]
        assert first.sum(0)[:24].tolist() == pytest.approx(features["column_sums_of_first_clip_first_24"], abs=1e-3)
        assert first.sum(1).tolist() == pytest.approx(features["band_sums_of_first_clip"], abs=1e-3)


@pytest.mark.parametrize("wanted", REFUSED)
def test_refusals(wanted: str) -> None:
    with pytest.raises(REFUSED[wanted]):
        read(*prepare(find(wanted)), folder=OMNI)


def test_a_pad_token_in_escaped_text_is_harmless() -> None:
    encoded, media = prepare(find("err-audio-pad-in-state"), "escape")
    assert all(row.isfinite().all() for row in read(encoded, media, folder=OMNI))


def test_every_case_is_answered_or_refused() -> None:
    assert {case["id"] for case in ANSWERED} | set(REFUSED) == {case["id"] for case in CASES}
    assert len(CASES) == 52


@pytest.mark.parametrize("wanted", ["text-mixed", "image-2", "audio-2-lengths", "mixed-image-audio-video-sound"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-4), ("bfloat16", 0.1)])
def test_other_precisions_stay_near(wanted: str, dtype: str, tolerance: float) -> None:
    case = find(wanted)
    logits = read(*prepare(case), dtype=dtype, folder=OMNI)
    assert {row.dtype for row in logits} == {torch.float32}
    assert deviation([row.softmax(-1) for row in logits], case["probabilities_fp32"]) < tolerance
