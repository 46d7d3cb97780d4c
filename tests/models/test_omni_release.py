"""What of an Omni checkpoint is loaded, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vectors import OMNI, release

from quaver.decider import limits_of
from quaver.errors import BadRelease
from quaver.models.clef import load_clef
from quaver.models.release import inspect

SHARD = "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny release to break."""
    return Path(shutil.copytree(OMNI, tmp_path / "omni", ignore=shutil.ignore_patterns("media", "*.xz")))


def change_json(file: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Of all shards, which become one file."""
    tensors = {name: tensor for shard in folder.glob("model-*") for name, tensor in load_file(shard).items()}
    change(tensors)
    for old in folder.glob("model*"):
        old.unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_the_tiny_release_is_one() -> None:
    info = inspect(OMNI)
    assert (info.kind, info.backbone) == ("clef", "qwen3_omni_moe")
    limits, reading = limits_of(info)
    assert (limits.max_length, limits.images, limits.audio, limits.videos) == (64_000, True, True, True)
    assert reading == ("joint", "independent")
    assert release(folder=OMNI).max_length == 64_000


def test_the_lexical_table_is_the_published_lm_head() -> None:
    published = {name: tensor for shard in OMNI.glob("model-*") for name, tensor in load_file(shard).items()}
    table = release(folder=OMNI).backbone.output_embeddings
    assert torch.equal(table, published["thinker.lm_head.weight"].float())


def test_the_parts_that_speak_are_left_on_disk(folder: Path) -> None:
    spoken = {"talker.model.norm.weight": torch.ones(4), "code2wav.decoder.0.conv.weight": torch.ones(2, 2)}
    change_tensors(folder, lambda tensors: tensors.update(spoken))
    backbone = load_clef(inspect(folder), "cpu", "float32").backbone
    assert torch.equal(backbone.output_embeddings, release(folder=OMNI).backbone.output_embeddings)


def named(tensors: dict[str, Tensor], part: str) -> str:
    return next(name for name in sorted(tensors) if part in name)


def take(part: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.pop(named(tensors, part))


def halve(part: str) -> Callable[[dict[str, Tensor]], object]:
    def change(tensors: dict[str, Tensor]) -> None:
        name = named(tensors, part)
        tensors[name] = tensors[name][:1].clone()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (take("lm_head"), "missing tensors: lm_head.weight"),
        (take("layers.1.self_attn.q_proj"), r"missing tensors: .*layers\.1\.self_attn\.q_proj\."),
        (halve("lm_head"), "mismatched tensors: lm_head.weight"),
        (lambda tensors: tensors.update(surplus=torch.ones(2)), "unexpected tensors: surplus"),
        (lambda tensors: tensors.update({"thinker.surplus": torch.ones(2)}), "unexpected tensors: .*surplus"),
        (take("experts.3.up_proj"), r"lacks thinker\.model\.layers\.0\.mlp\.experts\.3\.up_proj\.weight"),
        (halve("experts.3.up_proj"), r"thinker\.model\.layers\.0\.mlp\.experts\.3\.up_proj\.weight as \[1, 64\] where"),
    ],
    ids=["no lm_head", "one short", "misshapen", "one more", "inside the thinker", "an expert short", "odd expert"],
)
def test_wrong_tensors_are_named(folder: Path, change: Callable[[dict[str, Tensor]], object], message: str) -> None:
    change_tensors(folder, change)
    with pytest.raises(BadRelease, match=message):
        load_clef(inspect(folder), "cpu")


@pytest.mark.parametrize("name", ["thinker_config", "text_config"])
def test_tied_embeddings(folder: Path, name: str) -> None:
    def tie(config: Any) -> None:
        thinker = config["thinker_config"]
        (thinker if name == "thinker_config" else thinker["text_config"])["tie_word_embeddings"] = True

    change_json(folder / "config.json", tie)
    with pytest.raises(BadRelease, match="ties its output embeddings"):
        inspect(folder)


def test_a_head_of_another_width(folder: Path) -> None:
    change_json(folder / "joint_head_config.json", lambda config: config.update(hidden_size=48))
    with pytest.raises(BadRelease, match="hidden width 48 beside a backbone of width 64"):
        inspect(folder)


def test_without_its_head_it_is_a_plain_model(folder: Path) -> None:
    (folder / "joint_head.safetensors").unlink()
    (folder / "joint_head_config.json").unlink()
    with pytest.raises(BadRelease, match="a plain qwen3_omni_moe cannot answer without its joint schema head"):
        inspect(folder)


def test_a_missing_shard(folder: Path) -> None:
    (folder / SHARD).unlink()
    with pytest.raises(BadRelease, match=f"lacks {SHARD}"):
        inspect(folder)
