"""The engine's laws for Gemmas with pictures: blocks that see both ways stay whole, layers differ in shape."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import gemma3_tiny
import gemma4_tiny
import pytest
import torch
from gemma3_tiny import tiny_gemma3
from gemma4_tiny import LONG, SHAPES, SHORT, tiny_gemma4
from tiny import DEVICE, TOLERANCE, Prompt, Reader, distance, finish, probabilities, read, same_bits

from quaver.engine import Engine, Policy
from quaver.engine.causal import SNAPSHOT_EVERY, CausalPrompt, CausalReader
from quaver.engine.job import Reading
from quaver.engine.label import LabelHead
from quaver.models.backbone import Media
from quaver.models.gemma3 import Gemma3Backbone
from quaver.models.gemma4 import Gemma4Backbone
from quaver.prompts.label_encoded import LabelPlace

GEMMA3 = "gemma3"
MODELS = (*SHAPES, GEMMA3)
HEAD = (1, 2, 3)
Pictures = tuple[tuple[int, tuple[int, int]], ...]
#: By seed and size: one shorter than the window and one longer. Those of Gemma 3 are all of one size, which is longer.
BOTH: Pictures = ((1, SHORT), (2, LONG))


@cache
def model(shape: str) -> tuple[Any, Any]:
    if shape == GEMMA3:
        backbone: Any = Gemma3Backbone(tiny_gemma3().to(DEVICE))
    else:
        backbone = Gemma4Backbone(tiny_gemma4(shape).to(DEVICE))
    return backbone, LabelHead(backbone.output_embeddings, backbone.softcap)


def reader(shape: str, cache_bytes: int = 1 << 24, deterministic: bool = False) -> Reader:
    return CausalReader(*model(shape), cache_bytes, deterministic)


def shown(shape: str, pictures: Pictures) -> Media | None:
    if not pictures:
        return None
    if shape == GEMMA3:
        return gemma3_tiny.media([seed for seed, _ in pictures])
    return gemma4_tiny.media(shape, list(pictures))


def prompt(shape: str, pictures: Pictures = BOTH, before: int = 0, text: int = 60, question: int = 1) -> Prompt:
    """``before`` tokens of text, pictures, a text and a question about them."""
    rng = random.Random(7)
    opening = HEAD + tuple(rng.choices(range(5, 90), k=before))
    media = shown(shape, pictures)
    ids = media.ids if media else ()
    state = (*opening, *ids, *rng.choices(range(5, 90), k=text))
    asked = random.Random(question)
    groups = tuple((token,) for token in asked.sample(range(5, 90), 4))
    place = LabelPlace((*state, *asked.choices(range(5, 90), k=10 + question % 3)), len(state), groups)
    digests = tuple((len(opening) + at, digest) for at, digest in media.digests) if media else ()
    inputs = model(shape)[0].prepare(place.ids, media)
    return CausalPrompt(place, inputs, "", digests, len(opening) + len(ids) if media else 0)


def fresh(shape: str, asked: Prompt) -> list[list[float]]:
    """What a reader that knows nothing says, encoder and all."""
    asked.inputs.rows = None
    return probabilities(read(reader(shape, cache_bytes=0), asked))


def right(shape: str, asked: Prompt, reading: Reading) -> bool:
    return distance(probabilities(reading), fresh(shape, asked)) < TOLERANCE


@pytest.mark.parametrize("shape", MODELS)
def test_cached_equals_uncached(shape: str) -> None:
    """The same pictures under another question and another text, one more picture, another one of the same ids."""
    on = reader(shape)
    first = prompt(shape)
    assert right(shape, first, read(on, first))
    again = prompt(shape, question=2)
    reading = read(on, again)
    assert reading.reused == again.encoded.state_end and again.inputs.rows is None
    assert right(shape, again, reading)
    for pictures, shared in (((*BOTH, (3, SHORT)), BOTH), (((1, SHORT), (5, LONG)), BOTH[:1]), (((4, SHORT),), ())):
        asked = prompt(shape, pictures, question=3)
        reading = read(on, asked)
        media = shown(shape, shared)
        known = len(media.ids) if media else 0
        # What is before the first placeholder of another picture is known too.
        assert len(HEAD) + known <= reading.reused <= len(HEAD) + known + 1
        assert right(shape, asked, reading)


@pytest.mark.parametrize("shape", MODELS)
@pytest.mark.parametrize("part", [1, 5, 13, 30])
def test_chunked_equals_whole(shape: str, part: int) -> None:
    on, asked = reader(shape), prompt(shape)
    progress, ends = on.open(asked), []
    while progress.remaining:
        [outcome] = on.step([(progress, progress.part(part))]).outcomes
        ends.append(progress.position)
    on.close(progress)
    assert isinstance(outcome, Reading)
    inside = [end for end in ends for a, b in asked.inputs.blocks if a < end < b]
    assert bool(asked.inputs.blocks) == (shape != "E2B") and not inside
    assert right(shape, asked, outcome)


@pytest.mark.parametrize("shape", MODELS)
def test_batched_equals_alone(shape: str) -> None:
    """Texts and pictures, with and without a past, in one pass."""
    on = reader(shape)
    read(on, prompt(shape, BOTH[:1]))
    asked = [prompt(shape, pictures, question=i) for i, pictures in enumerate((BOTH, (), BOTH[:1], ((4, LONG),)))]
    opened = [on.open(one) for one in asked]
    assert {progress.position > len(HEAD) + 1 for progress in opened} == {True, False}
    for one, outcome in zip(
        asked, on.step([(progress, progress.remaining) for progress in opened]).outcomes, strict=True
    ):
        assert isinstance(outcome, Reading)
        assert right(shape, one, outcome)


@pytest.mark.parametrize("shape", ["31B", "12B", GEMMA3])
def test_an_image_across_a_place_to_go_on_from(shape: str) -> None:
    """Parts of a deterministic reader end after the image that lies across a multiple of their length."""
    before = SNAPSHOT_EVERY - len(HEAD) - 20
    asked = [prompt(shape, BOTH, before, text=600, question=i) for i in range(2)]
    [block] = [block for block in asked[0].inputs.blocks if block[0] < SNAPSHOT_EVERY < block[1]]
    on = reader(shape, deterministic=True)
    readings = []
    for one in asked:
        progress = on.open(one)
        assert progress.stops == (block[1], 2 * SNAPSHOT_EVERY)
        while progress.remaining:
            [outcome] = on.step([(progress, progress.part(100))]).outcomes
        on.keep(progress)
        on.close(progress)
        assert isinstance(outcome, Reading)
        readings.append(outcome)
        assert right(shape, one, outcome)
    assert readings[1].reused == 2 * SNAPSHOT_EVERY
    alone = reader(shape, cache_bytes=0, deterministic=True)
    progress = alone.open(asked[1])
    while progress.remaining:
        [outcome] = alone.step([(progress, progress.part(100))]).outcomes
    assert isinstance(outcome, Reading) and same_bits(outcome.logits, readings[1].logits)


@pytest.mark.parametrize("shape", ["31B", "12B", GEMMA3])
def test_a_cache_that_holds_half_of_an_image(shape: str) -> None:
    """It ends where there was no more room; the image is read again as a whole."""
    before = SNAPSHOT_EVERY - len(HEAD) - 20
    first, again = (prompt(shape, BOTH, before, question=i) for i in range(2))
    roomy = reader(shape)
    read(roomy, first)
    on = reader(shape, cache_bytes=roomy.tree.used * (SNAPSHOT_EVERY + 2) // first.encoded.state_end)
    read(on, first)
    [block] = [block for block in first.inputs.blocks if block[0] < SNAPSHOT_EVERY < block[1]]
    assert on.tree.length("", again.symbols) == SNAPSHOT_EVERY
    reading = read(on, again)
    assert reading.reused == block[0]
    assert right(shape, again, reading)


@pytest.mark.parametrize("shape", ["26B", "12B", GEMMA3])
def test_many_questions_through_an_engine_read_the_pictures_once(shape: str) -> None:
    asked = [prompt(shape, question=i) for i in range(5)]
    engine = Engine(reader(shape), Policy(step_tokens=20))
    done = [job.result(120).readings[0] for job in [engine.submit([one]) for one in asked]]
    stats = engine.stats()
    engine.close()
    assert all(right(shape, one, reading) for one, reading in zip(asked, done, strict=True))
    end = asked[0].encoded.state_end
    assert stats["tokens_computed"] == end + sum(one.tokens - end for one in asked)


def test_labels_are_read_under_the_softcap() -> None:
    """Of a model whose logits the cap bends, as log-probabilities in the full vocabulary, beside transformers'."""
    released = tiny_gemma4("31B", final_logit_softcapping=0.2)
    asked = prompt("31B")
    media = asked.inputs.media
    assert media is not None
    kinds = torch.tensor([[int(token == gemma4_tiny.IMAGE) for token in asked.encoded.ids]])
    with torch.inference_mode():
        expected = released(input_ids=asked.inputs.ids[None], **media.tensors, mm_token_type_ids=kinds).logits[0, -1]
    backbone = Gemma4Backbone(released)
    assert backbone.softcap == 0.2
    on: Reader = CausalReader(backbone, LabelHead(backbone.output_embeddings, backbone.softcap), 0)
    [logits] = finish(on, on.open(asked)).logits
    assert torch.allclose(
        logits.float(), expected.log_softmax(-1)[[group[0] for group in asked.encoded.groups]], atol=1e-5
    )
    assert expected.abs().max() > 0.15, "the cap bends nothing"
