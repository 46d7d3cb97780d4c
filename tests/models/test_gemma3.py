"""Gemma 3 with its tower in packed rows against transformers: images before and inside the text, parts, releases."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gemma3_tiny as tiny
import pytest
import torch
from gemma3_release import publish
from gemma3_tiny import IMAGE, TOKENS, WINDOW, tiny_gemma3
from safetensors.torch import load_file, save_file
from torch import Tensor

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Media, Row
from quaver.models.chat import load_chat
from quaver.models.gemma3 import Gemma3Backbone, load_gemma3

CPU = torch.device("cpu")
#: Tokens that a layer sees; a picture has 16.
WINDOWS = [WINDOW, 40]
NOTHING = Media((), {})


def text(length: int) -> list[int]:
    return [5 + (7 * i) % 80 for i in range(length)]


def prompt(media: Media, before: int = 3, after: int = 30) -> list[int]:
    return [*text(before), *media.ids, *text(after)]


def own(model: Any, ids: list[int], media: Media, **how: Any) -> Tensor:
    """transformers' logits [L, vocabulary]."""
    how = how or {"token_type_ids": types(ids)}
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), **media.tensors, **how).logits[0]
    return logits


def types(ids: list[int]) -> Tensor:
    return torch.tensor([[int(token == IMAGE) for token in ids]])


def read(backbone: Gemma3Backbone, ids: list[int], media: Media) -> Tensor:
    """Our logits [L, vocabulary]."""
    [computed] = backbone.forward([Row(backbone.prepare(ids, media if media.ids else None), 0, len(ids))])
    return computed.hidden @ backbone.output_embeddings.T


def differ(one: Tensor, other: Tensor) -> float:
    """Of the next token's probabilities, the largest difference anywhere."""
    return float((one.softmax(-1) - other.softmax(-1)).abs().max())


def seen(ids: list[int], window: int | None) -> Tensor:
    """[1, 1, L, L], true where a token is seen: what is before it and the rest of its image, no more than a
    window back. Written out pair by pair."""
    images, number = [], 0
    for position, token in enumerate(ids):
        number += token == IMAGE and (position == 0 or ids[position - 1] != IMAGE)
        images.append(number if token == IMAGE else 0)
    rows = [
        [(k <= q or 0 < images[q] == images[k]) and (window is None or k > q - window) for k in range(len(ids))]
        for q in range(len(ids))
    ]
    return torch.tensor(rows)[None, None]


@pytest.mark.parametrize("window", WINDOWS, ids=["longer than the window", "shorter"])
@pytest.mark.parametrize("before", [3, 25], ids=["before the text", "inside the text"])
@pytest.mark.parametrize("pictures", [[], [1], [1, 2]], ids=len)
def test_logits_are_transformers_own(pictures: list[int], before: int, window: int) -> None:
    model = tiny_gemma3(sliding_window=window)
    media = tiny.media(pictures) if pictures else NOTHING
    ids = prompt(media, before)
    expected = own(model, ids, media)
    found = read(Gemma3Backbone(model), ids, media)
    assert differ(found, expected) < 1e-5
    if pictures:
        other = own(tiny_gemma3(sliding_window=window), ids, tiny.media([seed + 7 for seed in pictures]))
        assert differ(other[-1], expected[-1]) > 1e-3, "a model that does not care what it sees"


@pytest.mark.parametrize("window", WINDOWS, ids=["longer than the window", "shorter"])
def test_images_are_seen_both_ways_in_all_layers(window: int) -> None:
    media = tiny.media([1, 2])
    ids = prompt(media)
    model = tiny_gemma3(sliding_window=window)
    rule = {"full_attention": seen(ids, None), "sliding_attention": seen(ids, window)}
    expected, causal = own(model, ids, media, attention_mask=rule), own(model, ids, media, attention_mask=None)
    assert differ(read(Gemma3Backbone(model), ids, media), expected) < 1e-5
    assert differ(causal, expected) > 1e-3


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("window", WINDOWS, ids=["longer than the window", "shorter"])
def test_what_transformers_generates_first(cache: str, window: int) -> None:
    media = tiny.media([1, 2])
    ids = prompt(media)
    model = tiny_gemma3(sliding_window=window)
    generated = model.generate(
        input_ids=torch.tensor([ids]),
        **media.tensors,
        token_type_ids=types(ids),
        max_new_tokens=1,
        do_sample=False,
        cache_implementation=cache,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert differ(read(Gemma3Backbone(model), ids, media)[-1:], generated.logits[0]) < 1e-5


def test_parts_and_company() -> None:
    """Cut before, between and after pictures, two prompts in one batch."""
    media, other = tiny.media([1, 2]), tiny.media([3])
    backbone = Gemma3Backbone(tiny_gemma3())
    ids, more = prompt(media), prompt(other, after=11)
    long, short = backbone.prepare(ids, media), backbone.prepare(more, other)
    cuts = [0, 3, 3 + TOKENS + 2, len(media.ids) + 3, len(ids)]
    past: tuple[Tensor, ...] = ()
    hidden = []
    for start, end in itertools.pairwise(cuts):
        part, whole = backbone.forward([Row(long, start, end, past=past, keep=end), Row(short, 0, len(more))])
        past += (part.kept,)
        hidden.append(part.hidden)
        assert differ(whole.hidden @ backbone.output_embeddings.T, read(backbone, more, other)) < 1e-5
    assert differ(torch.cat(hidden) @ backbone.output_embeddings.T, read(backbone, ids, media)) < 1e-5


def test_a_part_never_ends_inside_an_image() -> None:
    media = tiny.media([1, 2])
    backbone = Gemma3Backbone(tiny_gemma3())
    inputs = backbone.prepare(prompt(media), media)
    assert inputs.blocks == ((4, 20), (22, 38))
    with pytest.raises(ValueError, match="divide a block"):
        backbone.forward([Row(inputs, 0, 10, keep=10)])


def test_image_tokens_that_no_picture_has() -> None:
    backbone = Gemma3Backbone(tiny_gemma3())
    media = tiny.media([1])
    with pytest.raises(BadRequest, match="holds 17 <image_soft_token> tokens where its media give 16"):
        backbone.prepare([*prompt(media), IMAGE], media)
    with pytest.raises(BadRequest, match="holds 1 <image_soft_token> tokens where its media give 0"):
        backbone.prepare([*text(9), IMAGE])


def test_a_release_under_its_published_names(tmp_path: Path) -> None:
    model = tiny_gemma3()
    media = tiny.media([1, 2])
    ids = prompt(media)
    expected = own(model, ids, media)
    file = publish(model, tmp_path)
    tensors = load_file(file)
    assert {name.partition(".")[0] for name in tensors} == {"language_model", "vision_tower", "multi_modal_projector"}
    assert {"language_model.model.embed_tokens.weight", "vision_tower.vision_model.post_layernorm.bias"} <= set(tensors)
    assert differ(read(load_gemma3(tmp_path, CPU, torch.float32), ids, media), expected) < 1e-5
    assert load_gemma3(tmp_path, CPU, torch.bfloat16).dtype == torch.bfloat16
    blind = load_chat(tmp_path, CPU, torch.float32)
    [computed] = blind.forward([Row(blind.prepare(text(40)), 0, 40)])
    assert differ(computed.hidden @ blind.output_embeddings.T, own(tiny_gemma3(), text(40), NOTHING)) < 1e-5
    with pytest.raises(BadRequest, match="reads text"):
        blind.prepare(ids, media)


@pytest.mark.parametrize(
    ("missing", "module"),
    [
        ("vision_tower.vision_model.post_layernorm.bias", "model.vision_tower.post_layernorm.bias"),
        ("multi_modal_projector.mm_soft_emb_norm.weight", "model.multi_modal_projector.mm_soft_emb_norm.weight"),
        ("language_model.model.norm.weight", "model.language_model.norm.weight"),
    ],
)
def test_weights_that_are_not_all_there(missing: str, module: str, tmp_path: Path) -> None:
    file = publish(tiny_gemma3(), tmp_path)
    tensors = load_file(file)
    save_file({name: tensor for name, tensor in tensors.items() if name != missing}, file, {"format": "pt"})
    with pytest.raises(BadRelease, match=f"missing tensors: {module}"):
        load_gemma3(tmp_path, CPU, torch.float32)
    more = missing.replace(".weight", ".more").replace(".bias", ".more")
    save_file(tensors | {more: torch.zeros(1)}, file, {"format": "pt"})
    with pytest.raises(BadRelease, match=r"unexpected tensors: model\..*\.more"):
        load_gemma3(tmp_path, CPU, torch.float32)
    save_file(tensors | {missing: torch.zeros(3)}, file, {"format": "pt"})
    with pytest.raises(BadRelease, match=f"mismatched tensors: {module}"):
        load_gemma3(tmp_path, CPU, torch.float32)
