"""The engine's laws for prompts with pictures: equal ids with other pixels, parts that end inside a picture."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest
import tiny
import torch
from tiny import KINDS, TOLERANCE, Prompt, distance, fresh, prompt, read, reader

from quaver.engine.job import Reading
from quaver.models.backbone import Media

HEAD = (1, 2, 3)
SIDE = 8  # patches; four make a token


def picture(seed: int) -> tuple[torch.Tensor, bytes]:
    """Patches [64, 1536] of a picture and their digest."""
    patches = torch.randn(SIDE * SIDE, 1536, generator=torch.Generator().manual_seed(seed))
    return patches, hashlib.sha256(patches.numpy().tobytes()).digest()


def seen(kind: str, pictures: list[int], text: int = 60, schema: int = 1, seed: int = 0) -> Prompt:
    """A prompt of some pictures and a text of so many tokens."""
    rng = random.Random(seed)
    patches, digests = zip(*map(picture, pictures), strict=True)
    each = (tiny.VISION_START, *(tiny.IMAGE,) * (SIDE * SIDE // 4), 4)
    ids = each * len(pictures)
    media = Media(
        ids,
        {
            "pixel_values": torch.cat(patches),
            "image_grid_thw": torch.tensor([[1, SIDE, SIDE]] * len(pictures)),
        },
        tuple((number * len(each) + 1, digest) for number, digest in enumerate(digests)),
    )
    state = (*HEAD, *ids, *(rng.randrange(5, 90) for _ in range(text)))
    asked = prompt(state, schema=schema, kind=kind, below=90)
    return replace(
        asked,
        inputs=tiny.model(kind)[0].prepare(asked.encoded.ids, media),
        digests=tuple((len(HEAD) + position, digest) for position, digest in media.digests),
        media_end=len(HEAD) + len(ids),
    )


def right(kind: str, asked: Prompt, reading: Reading) -> bool:
    """Whether a reading is what a fresh reader says; ``asked`` is read anew, encoder and all."""
    asked.inputs.rows = None
    return distance(tiny.probabilities(reading), fresh(kind, asked)) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_known_by_its_pixels(kind: str) -> None:
    on = reader(kind)
    first = seen(kind, [1])
    assert right(kind, first, read(on, first))
    same, other = seen(kind, [1], schema=2), seen(kind, [2], schema=2)
    assert same.encoded.ids == other.encoded.ids
    readings = {asked: read(on, asked) for asked in (same, other)}
    assert all(right(kind, asked, reading) for asked, reading in readings.items())
    assert distance(*(tiny.probabilities(reading) for reading in readings.values())) > 100 * TOLERANCE
    assert readings[same].reused > same.media_end
    # What is before the first placeholder is text that both have.
    assert readings[other].reused <= len(HEAD) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_not_looked_at_twice(kind: str) -> None:
    """With another text after it, and with another picture after it."""
    on = reader(kind)
    read(on, seen(kind, [1]))
    retold = seen(kind, [1], seed=5)
    reading = read(on, retold)
    assert reading.reused >= retold.media_end and retold.inputs.rows is None
    assert right(kind, retold, reading)
    both = seen(kind, [1, 2])
    reading = read(on, both)
    if kind == "dense":
        assert reading.reused == retold.media_end
    assert right(kind, both, reading)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [1, 5, 13, 64])
def test_parts_may_end_inside_a_picture(kind: str, part: int) -> None:
    asked = seen(kind, [1, 2])
    assert right(kind, asked, read(reader(kind), asked, part))


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_and_texts_share_a_pass(kind: str) -> None:
    on = reader(kind)
    read(on, seen(kind, [1]))
    asked = [seen(kind, [1], schema=3), prompt(tiny.tokens(1, 40), kind=kind), seen(kind, [3, 1]), seen(kind, [2])]
    opened = [on.open(one) for one in asked]
    outcomes = on.step([(progress, progress.remaining) for progress in opened]).outcomes
    for one, outcome in zip(asked, outcomes, strict=True):
        assert isinstance(outcome, Reading)
        assert right(kind, one, outcome)
