"""Gemma 4 in packed rows against transformers, under every rule of its attention mask."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gemma4_tiny as tiny
import pytest
import torch
from gemma4_tiny import IMAGE, LONG, SHAPES, SHORT, WINDOW, tiny_gemma4
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import layer_norm
from transformers import AutoModelForCausalLM

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Media, Row
from quaver.models.gemma4 import Gemma4Backbone, load_gemma4
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.models.gemma4_probe import mask_probe, mask_probes
from quaver.models.gemma4_vision import Float32LayerNorm

CPU = torch.device("cpu")
#: By its width: what ``sees`` says of a query, a key and whether both are of one image.
Sees = Callable[[int, int, bool], bool]
TWO_WAYS = ("31B", "26B", "12B")


def causal(q: int, k: int, _: bool) -> bool:
    return k <= q


def both(q: int, k: int, same: bool) -> bool:
    return k <= q or same


def windowed(sees: Sees, window: int = WINDOW) -> Sees:
    """Bounded to the left only."""
    return lambda q, k, same: sees(q, k, same) and k > q - window


#: What each setting of the knobs means, in layers of both kinds: full and sliding.
RULES: dict[str, tuple[Gemma4Knobs, Sees, Sees]] = {
    "released": (Gemma4Knobs(), causal, windowed(both)),
    "all layers": (Gemma4Knobs(bidirectional_full_layers=True), both, windowed(both)),
    "causal": (Gemma4Knobs(bidirectional=False), causal, windowed(causal)),
    "window": (Gemma4Knobs(sliding_window=9), causal, windowed(both, 9)),
    "all layers, window": (
        Gemma4Knobs(bidirectional_full_layers=True, sliding_window=40),
        both,
        windowed(both, 40),
    ),
}


def prompt(media: Media, text: int = 30) -> list[int]:
    return [1, 2, 3, *media.ids, *(5 + (7 * i) % 80 for i in range(text))]


def mask(ids: list[int], sees: Sees) -> Tensor:
    """[1, 1, L, L], true where a token is seen; written out pair by pair."""
    images, number = [], 0
    for position, token in enumerate(ids):
        number += token == IMAGE and (position == 0 or ids[position - 1] != IMAGE)
        images.append(number if token == IMAGE else 0)
    rows = [[sees(q, k, images[q] != 0 and images[q] == images[k]) for k in range(len(ids))] for q in range(len(ids))]
    return torch.tensor(rows)[None, None]


def own(model: Any, ids: list[int], media: Media, **how: Any) -> Tensor:
    """transformers' logits [L, vocabulary]."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), **media.tensors, **how).logits[0]
    return logits


def logits(backbone: Gemma4Backbone, hidden: Tensor) -> Tensor:
    raw = hidden @ backbone.output_embeddings.T
    return 30.0 * torch.tanh(raw / 30.0)


def read(backbone: Gemma4Backbone, ids: list[int], media: Media) -> Tensor:
    """Our logits [L, vocabulary]."""
    [computed] = backbone.forward([Row(backbone.prepare(ids, media), 0, len(ids))])
    return logits(backbone, computed.hidden)


def types(ids: list[int]) -> Tensor:
    return torch.tensor([[int(token == IMAGE) for token in ids]])


def differ(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


@pytest.mark.parametrize("shape", TWO_WAYS)
@pytest.mark.parametrize("size", [SHORT, LONG], ids=["shorter than the window", "longer"])
def test_every_rule_equals_transformers_under_its_mask(shape: str, size: tuple[int, int]) -> None:
    media = tiny.media(shape, [(1, size), (2, size)])
    ids = prompt(media)
    model = tiny_gemma4(shape)
    expected = {
        name: own(model, ids, media, attention_mask={"full_attention": mask(ids, f), "sliding_attention": mask(ids, s)})
        for name, (_, f, s) in RULES.items()
    }
    backbone = Gemma4Backbone(model)
    for name, (knobs, _, _) in RULES.items():
        assert differ(read(backbone.under(knobs), ids, media), expected[name]) < 2e-5, name
    answers = list(expected.values())
    assert all(differ(a, b) > 1e-3 for i, a in enumerate(answers) for b in answers[:i]), "rules that differ in nothing"


@pytest.mark.parametrize("shape", ["31B", "26B", "E2B"])
def test_the_released_rule_is_transformers_own_of_gemma4(shape: str) -> None:
    media = tiny.media(shape, [(1, LONG), (2, SHORT)])
    ids = prompt(media)
    model = tiny_gemma4(shape)
    expected = own(model, ids, media, mm_token_type_ids=types(ids))
    assert differ(read(Gemma4Backbone(model), ids, media), expected) < 2e-5


@pytest.mark.parametrize("size", [SHORT, LONG], ids=["shorter than the window", "longer"])
def test_unified_by_transformers_two_paths(size: tuple[int, int]) -> None:
    """With a static cache it has the released rule; without one full layers see images both ways, and sliding
    layers see all of an image, which is another rule once it is longer than the window."""
    media = tiny.media("12B", [(1, size)])
    ids = prompt(media)
    model = tiny_gemma4("12B")
    forward = own(model, ids, media, mm_token_type_ids=types(ids))
    generated = model.generate(
        input_ids=torch.tensor([ids]),
        **media.tensors,
        mm_token_type_ids=types(ids),
        max_new_tokens=1,
        do_sample=False,
        cache_implementation="static",
        output_logits=True,
        return_dict_in_generate=True,
    )
    backbone = Gemma4Backbone(model)
    assert differ(read(backbone, ids, media)[-1], generated.logits[0][0]) < 2e-5
    wide = read(backbone.under(Gemma4Knobs(bidirectional_full_layers=True)), ids, media)
    assert (differ(wide, forward) < 2e-5) == (size == SHORT)


def test_images_are_causal_where_the_release_says_nothing() -> None:
    media = tiny.media("E2B", [(1, LONG)])
    ids = prompt(media)
    model = tiny_gemma4("E2B")
    rule = {"full_attention": mask(ids, causal), "sliding_attention": mask(ids, windowed(causal))}
    expected = own(model, ids, media, attention_mask=rule)
    backbone = Gemma4Backbone(model)
    assert backbone.prepare(ids, media).blocks == ()
    assert differ(read(backbone, ids, media), expected) < 2e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_and_company(shape: str) -> None:
    """Cut before, between and after pictures, two prompts in one batch."""
    media, other = tiny.media(shape, [(1, LONG), (2, SHORT)]), tiny.media(shape, [(3, SHORT)])
    backbone = Gemma4Backbone(tiny_gemma4(shape))
    ids, more = prompt(media), prompt(other, 11)
    long, short = backbone.prepare(ids, media), backbone.prepare(more, other)
    cuts = [0, 4, 4 + 24, len(media.ids) + 3, len(ids)]
    past: tuple[Tensor, ...] = ()
    hidden = []
    for start, end in itertools.pairwise(cuts):
        part, _ = backbone.forward([Row(long, start, end, past=past, keep=end), Row(short, 0, len(more))])
        past += (part.kept,)
        hidden.append(part.hidden)
    assert differ(logits(backbone, torch.cat(hidden)), read(backbone, ids, media)) < 2e-5


def test_a_part_never_ends_inside_an_image() -> None:
    media = tiny.media("12B", [(1, SHORT)])
    backbone = Gemma4Backbone(tiny_gemma4("12B"))
    inputs = backbone.prepare(prompt(media), media)
    assert inputs.blocks == ((4, 16),)
    with pytest.raises(ValueError, match="divide a block"):
        backbone.forward([Row(inputs, 0, 10, keep=10)])
    assert backbone.under(Gemma4Knobs(bidirectional=False)).prepare(prompt(media), media).blocks == ()


@pytest.mark.parametrize("shape", TWO_WAYS)
@pytest.mark.parametrize("size", [SHORT, LONG], ids=["shorter than the window", "longer"])
def test_the_probe_tells_causal_from_both_ways(shape: str, size: tuple[int, int]) -> None:
    one = tiny.media(shape, [(1, size)])
    other = Media(one.ids, dict(one.tensors), one.digests)
    pixels = one.tensors["pixel_values"].clone()
    pixels[:, size[0] * size[1] // 2 * (1 if shape == "12B" else 4) :] = 0.5
    other = Media(one.ids, {**one.tensors, "pixel_values": pixels}, one.digests)
    found = mask_probes(
        Gemma4Backbone(tiny_gemma4(shape)), prompt(one), one, other, {n: k for n, (k, _, _) in RULES.items()}
    )
    assert found.pop("causal") < 1e-6 < 1e-3 < min(found.values())


def test_the_probe_of_a_release_that_is_causal() -> None:
    one, other = (tiny.media("E2B", [(seed, LONG)]) for seed in (1, 2))
    assert mask_probe(Gemma4Backbone(tiny_gemma4("E2B")), prompt(one), one, other) == 0.0
    with pytest.raises(BadRequest, match="same shape"):
        mask_probe(Gemma4Backbone(tiny_gemma4("E2B")), prompt(one), one, tiny.media("E2B", [(1, SHORT)]))


def test_soft_tokens_of_unified_are_not_scaled() -> None:
    """Text embeddings are, by the square root of the width."""
    media = tiny.media("12B", [(1, SHORT)])
    model = tiny_gemma4("12B")
    features = model.model.get_image_features(**media.tensors, return_dict=True).pooler_output
    backbone = Gemma4Backbone(model)
    encoded = backbone.encode(backbone.prepare(prompt(media), media))
    assert torch.equal(encoded[0], torch.cat(features))


@pytest.mark.parametrize("shape", ["31B", "12B"])
def test_float32_vision_sees_pixels_that_were_not_rounded(shape: str) -> None:
    media = tiny.media(shape, [(1, LONG)])
    wide = tiny_gemma4(shape).bfloat16().float()  # the weights of a release in bfloat16
    with torch.inference_mode():
        expected = torch.cat(wide.model.get_image_features(**media.tensors, return_dict=True).pooler_output)
    released = Gemma4Backbone(tiny_gemma4(shape).bfloat16())
    exact = Gemma4Backbone(tiny_gemma4(shape).bfloat16(), Gemma4Knobs(fp32_vision_embedder=True))
    inputs = released.prepare(prompt(media), media)
    assert torch.equal(exact.encode(inputs)[0], expected.bfloat16())
    own_features = (
        tiny_gemma4(shape)
        .bfloat16()
        .model.get_image_features(
            media.tensors["pixel_values"].bfloat16() if shape == "12B" else media.tensors["pixel_values"],
            media.tensors["image_position_ids"],
            return_dict=True,
        )
    )
    assert torch.equal(released.encode(inputs)[0], torch.cat(own_features.pooler_output))
    assert differ(released.encode(inputs).float(), exact.encode(inputs).float()) > 1e-4
    assert read(exact, prompt(media), media).isfinite().all()


def test_float32_layer_norms() -> None:
    """As near to float64 as one rounding to bfloat16, also on patches that are nearly flat."""
    model = tiny_gemma4("12B").bfloat16()
    Gemma4Backbone(model, Gemma4Knobs(fp32_layernorm_statistics=True))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert [type(norm) for norm in norms] == [Float32LayerNorm] * 3
    norm, random = norms[0], torch.Generator().manual_seed(1)
    flat = (0.5 + 0.004 * torch.rand(64, 192, generator=random)).bfloat16()
    with torch.inference_mode():
        norm.weight.normal_(1.0, 0.2, generator=random)
        norm.bias.normal_(0.0, 0.2, generator=random)
        exact = layer_norm(flat.double(), (192,), norm.weight.double(), norm.bias.double(), norm.eps)
        found = norm(flat)
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).norm() / exact.norm() < 2e-3


@pytest.mark.parametrize(
    ("shape", "knobs", "message"),
    [
        ("E2B", {"bidirectional_full_layers": True}, "reads images causally"),
        ("E2B", {"bidirectional": False}, "reads images causally"),
        ("31B", {"fp32_layernorm_statistics": True}, "without LayerNorms"),
    ],
)
def test_knobs_that_a_release_does_not_have(shape: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Gemma4Backbone(tiny_gemma4(shape), Gemma4Knobs(**knobs))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"image_budget": 960}, "70, 140, 280, 560, 1120 tokens at most, got 960"),
        ({"sliding_window": 0}, "1 token or more, got 0"),
        ({"bidirectional": False, "bidirectional_full_layers": True}, "no layer can see them both ways"),
    ],
)
def test_knobs_that_cannot_be(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message) as error:
        Gemma4Knobs(**knobs)
    assert error.value.where[0] in knobs


def test_knobs_that_are_fixed_when_a_model_loads() -> None:
    backbone = Gemma4Backbone(tiny_gemma4("12B"))
    with pytest.raises(BadRequest, match="load it with fp32_vision_embedder=True"):
        backbone.under(Gemma4Knobs(fp32_vision_embedder=True))
    assert Gemma4Knobs().facts() == {
        "bidirectional": True,
        "bidirectional_full_layers": False,
        "fp32_layernorm_statistics": False,
        "fp32_vision_embedder": False,
        "image_budget": None,
        "sliding_window": None,
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_loads_without_what_hears(shape: str, tmp_path: Path) -> None:
    model = tiny_gemma4(shape, audio=True)
    media = tiny.media(shape, [(1, LONG)])
    ids = prompt(media)
    expected = own(model, ids, media, mm_token_type_ids=types(ids))
    model.save_pretrained(tmp_path)
    backbone = load_gemma4(tmp_path, CPU, torch.float32)
    if shape != "12B":  # by the other rule, see above
        assert differ(read(backbone, ids, media), expected) < 2e-5
    assert load_gemma4(tmp_path, CPU, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("shape", ["E2B", "12B"])
def test_a_release_of_text_alone(shape: str, tmp_path: Path) -> None:
    """Of E2B with its per-layer embeddings, which are found by token ids."""
    config = tiny_gemma4(shape).config.text_config
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    ids = [5 + (7 * i) % 80 for i in range(40)]
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([ids])).logits[0]
    backbone = load_gemma4(tmp_path, CPU, torch.float32)
    [computed] = backbone.forward([Row(backbone.prepare(ids), 0, len(ids))])
    assert differ(logits(backbone, computed.hidden), expected) < 2e-5
    with pytest.raises(BadRequest, match="reads text"):
        backbone.prepare(ids, tiny.media(shape, [(1, SHORT)]))


def test_weights_that_are_not_all_there(tmp_path: Path) -> None:
    tiny_gemma4("E2B").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    # Published files have keys and values of layers that share another's; they are not read.
    shared = "model.language_model.layers.3.self_attn."
    more = {f"{shared}k_proj.weight": torch.zeros(16, 32), f"{shared}k_norm.weight": torch.zeros(16)}
    save_file(tensors | more, file, {"format": "pt"})
    load_gemma4(tmp_path, CPU, torch.float32)
    missing = "model.vision_tower.patch_embedder.input_proj.weight"
    save_file({name: tensor for name, tensor in tensors.items() if name != missing}, file, {"format": "pt"})
    with pytest.raises(BadRelease, match=f"missing tensors: {missing}"):
        load_gemma4(tmp_path, CPU, torch.float32)
    save_file(tensors | {"model.language_model.layers.9.nothing": torch.zeros(1)}, file, {"format": "pt"})
    with pytest.raises(BadRelease, match=r"unexpected tensors: model\.language_model\.layers\.9\.nothing"):
        load_gemma4(tmp_path, CPU, torch.float32)


@pytest.mark.parametrize("token", [tiny.VIDEO, tiny.AUDIO, IMAGE])
def test_other_media_and_stray_tokens_are_refused(token: int) -> None:
    media = tiny.media("12B", [(1, SHORT)])
    backbone = Gemma4Backbone(tiny_gemma4("12B"))
    with pytest.raises(BadRequest, match="tokens where its media give"):
        backbone.prepare([*prompt(media), token], media)
