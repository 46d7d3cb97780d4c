"""clef-omni behind ``quaver.load``: the reference's answers, from bodies with images, clips and films."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from vectors import OMNI, cases, media_source, question

import quaver
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRequest

CASES = {case["id"]: case for case in cases("clef-omni-tiny/cases")}
#: One of each kind; the others differ in what lies below the decider.
ANSWERED = [
    "text-mixed",
    "image-exif6_160x96",
    "image-2",
    "audio-ogg",
    "audio-from-video",
    "video-big-frames",
    "video-2-one-track",
    "video-2-sound",
    "mixed-image-audio-video-silent",
    "mixed-audio-video-2-sound",
]
LATE = {"late": quaver.Noul("Is it late?")}
#: What sharing a state may change in a probability.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def decider() -> Iterator[Decider[Any]]:
    with quaver.load(str(OMNI), special_tokens="reference", confidence="max", dtype="float32") as decider:
        yield decider


def body(case: dict[str, Any]) -> dict[str, Any]:
    """The case's body with its media as paths of this machine."""
    lists = {kind: case["request"][kind] for kind in ("images", "audio", "videos") if kind in case["request"]}
    return {**case["request"], **{kind: [media_source(item, OMNI) for item in lists[kind]] for kind in lists}}


@pytest.mark.parametrize("case", ANSWERED)
def test_replies_equal_the_reference(decider: Decider[Any], case: str) -> None:
    reply, expected = decider.systemone(body(CASES[case])), CASES[case]["answers"]
    assert reply["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    assert list(reply["answers"]) == list(expected["answers"])
    for name, answer in expected["answers"].items():
        for key, value in answer.items():
            if key == "probabilities":
                assert reply["answers"][name][key] == pytest.approx(value, abs=1.5e-4)
            elif isinstance(value, float):
                # The reference rounds to 4 decimals; an expectation adds up to 10 of them.
                assert reply["answers"][name][key] == pytest.approx(value, abs=1.5e-3 if key == "score" else 1.5e-4)
            elif key != "legend":
                assert reply["answers"][name][key] == value


def test_samples_are_heard_as_they_are(decider: Decider[Any]) -> None:
    case = CASES["audio-array"]
    asked, [samples] = case["request"], case["request"]["audio"]
    questions = {name: question(fields) for name, fields in asked["questions"].items()}
    answer = decider.decide(asked["state"], questions, audio=[np.array(samples, np.float32)])["is_refund"]
    assert answer.probability == pytest.approx(case["probabilities_fp32"][0][0], abs=1e-4)


@pytest.mark.parametrize("case", ["audio-2-lengths", "mixed-image-audio-video-sound"])
def test_a_known_state_is_read_once(decider: Decider[Any], case: str) -> None:
    asked = body(CASES[case]) | {"state": "asked twice"}
    first, again = decider.systemone(asked), decider.systemone(asked)
    cached = [reply["usage"]["input_tokens_details"]["cached_tokens"] for reply in (first, again)]
    assert cached[0] < cached[1] > first["usage"]["input_tokens"] // 8
    for name, answer in first["answers"].items():
        key = "noul" if answer["type"] == "noul" else "probabilities"
        assert again["answers"][name][key] == pytest.approx(answer[key], abs=TOLERANCE)


def test_sounds_of_one_length_are_told_apart(decider: Decider[Any]) -> None:
    """Their prompts have the same ids; only what is heard differs."""
    noise = np.random.default_rng(3).normal(scale=0.1, size=16_000).astype(np.float32)
    first, other = (decider.decide("?", LATE, audio=[samples])["late"] for samples in (noise, noise[::-1].copy()))
    assert abs(first.probability - other.probability) > 100 * TOLERANCE
    assert decider.decide("?", LATE, audio=[noise])["late"].probability == pytest.approx(
        first.probability, abs=TOLERANCE
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"audio": [OMNI / "media/silent_96x64.mp4"]}, BadMedia, "audio item 0: .*no audio stream"),
        ({"videos": [OMNI / "media/mono_16k.wav"]}, BadMedia, "videos item 0: .*no video stream"),
        ({"images": [OMNI / "media/small_16.png", OMNI / "media/toowide_804x4.png"]}, BadMedia, "item 1 of images"),
        ({"audio": [OMNI / "media/short_16k.wav"], "state": "<|audio_pad|>"}, BadRequest, r"remove <\|audio_pad\|>"),
    ],
)
def test_refusals(decider: Decider[Any], change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        decider.systemone({"state": "?", "questions": {"late": {"type": "noul", "instructions": "?"}}, **change})
