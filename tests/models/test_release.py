"""What is a release, and why a folder is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor
from vectors import FLASH

from quaver.errors import BadRelease
from quaver.models.clef import load_clef
from quaver.models.release import find, inspect


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny release to break."""
    for file in FLASH.iterdir():
        if file.suffix in (".json", ".safetensors"):
            shutil.copy(file, tmp_path / file.name)
    return tmp_path


def change_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change_tensors(file: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def test_the_tiny_release_is_one(folder: Path) -> None:
    info = inspect(find(str(folder)))
    assert (info.kind, info.path) == ("clef", folder)
    assert info.name == f"{folder.name}@{info.revision[:12]}"
    assert info.head_config["hidden_size"] == 64
    assert load_clef(info, "cpu").backbone.hidden_size == 64


def test_models_that_differ_never_share_a_name(folder: Path) -> None:
    first = inspect(folder).name
    assert inspect(folder).name == first
    change_tensors(folder / "joint_head.safetensors", lambda tensors: tensors["residual_gate"].add_(1))
    second = inspect(folder).name
    change_tensors(folder / "model.safetensors", lambda tensors: tensors["lm_head.weight"].mul_(2))
    third = inspect(folder).name
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["joint_head.safetensors", "joint_head_config.json"], "a plain qwen3_5 cannot answer without its joint"),
        (["joint_head.safetensors"], r"not a release: joint_head\.safetensors missing"),
        (["joint_head_config.json"], r"not a release: joint_head_config\.json missing"),
        (["tokenizer.json"], "tokenizer.json is missing"),
        (["config.json"], "config.json is missing"),
        (["model.safetensors"], "lacks model.safetensors"),
    ],
)
def test_missing_files(folder: Path, missing: list[str], message: str) -> None:
    for name in missing:
        (folder / name).unlink()
    with pytest.raises(BadRelease, match=message):
        inspect(folder)


def test_missing_shards(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}})
    )
    with pytest.raises(BadRelease, match=r"lacks model-1\.safetensors;"):
        inspect(folder)


def test_a_head_of_another_width(folder: Path) -> None:
    change_json(folder / "joint_head_config.json", hidden_size=48)
    with pytest.raises(BadRelease, match="hidden width 48 beside a backbone of width 64"):
        inspect(folder)


def test_tied_embeddings(folder: Path) -> None:
    change_json(folder / "config.json", tie_word_embeddings=True)
    with pytest.raises(BadRelease, match="ties its output embeddings"):
        inspect(folder)


def test_a_backbone_that_is_not_supported(folder: Path) -> None:
    change_json(folder / "config.json", model_type="mamba2")
    with pytest.raises(BadRelease, match=r"'mamba2', which is not supported yet; supported: qwen3_5, qwen3_omni_moe"):
        inspect(folder)


def test_a_split_release_is_told_apart_by_its_configuration(folder: Path) -> None:
    change_json(folder / "config.json", reading="split", model_type="bert", name="quaver-mini-1")
    info = inspect(folder)
    assert (info.kind, info.name) == ("split", f"quaver-mini-1@{info.revision[:12]}")
    with pytest.raises(BadRelease, match="not a Clef release"):
        load_clef(info)


@pytest.mark.parametrize("text", ["{", "[]", "\udc00"])
def test_broken_json(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadRelease, match="JSON"):
        inspect(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("lm_head.weight"), "missing tensors: lm_head.weight"),
        (lambda tensors: tensors.pop(sorted(tensors)[5]), "missing tensors"),
        (lambda tensors: tensors.update(surplus=next(iter(tensors.values())).clone()), "unexpected tensors: surplus"),
        (
            lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"][:, :32].clone()}),
            "mismatched tensors: lm_head.weight",
        ),
    ],
    ids=["no lm_head", "one short", "one more", "misshapen"],
)
def test_wrong_backbone_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object], message: str) -> None:
    change_tensors(folder / "model.safetensors", change)
    with pytest.raises(BadRelease, match=message):
        load_clef(inspect(folder), "cpu")


def test_weights_cut_short(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadRelease, match="cannot be loaded"):
        load_clef(inspect(folder), "cpu")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nowhere"])
def test_paths_that_lead_nowhere(name: str) -> None:
    with pytest.raises(BadRelease, match="not a folder"):
        find(name)


def test_a_file_is_no_release() -> None:
    with pytest.raises(BadRelease, match="not a folder"):
        find(FLASH / "config.json")
    with pytest.raises(BadRelease, match="not a folder"):
        inspect(FLASH / "config.json")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(BadRelease, match=r"config\.json is missing"):
        inspect(tmp_path)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache without a network behind it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["nobody/nothing", "nobody/nothing@" + "0" * 40, "not a name", "a/b/c"])
def test_hub_ids_that_cannot_be_had(hub_cache: Path, name: str) -> None:
    assert not list(hub_cache.iterdir())
    with pytest.raises(BadRelease, match="neither a folder here nor to be had from the hub"):
        find(name)


def test_a_pinned_release_from_the_cache(hub_cache: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = hub_cache / "models--owner--tiny"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    for file in FLASH.iterdir():
        if file.suffix in (".json", ".safetensors"):
            (snapshot / file.name).symlink_to(file)
    for name in ("owner/tiny", f"owner/tiny@{commit}"):
        info = inspect(find(name))
        assert (info.path, info.revision, info.name) == (snapshot, commit, "owner/tiny@0123456789ab")
    with pytest.raises(BadRelease, match="neither"):
        find("owner/tiny@" + "f" * 40)


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A plain Qwen3.5 with the chat template that it was trained with, under a name of its own."""
    to = tmp_path / "some-qwen"
    to.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "chat_template.jinja"):
        shutil.copy(FLASH / name, to)
    return to


def test_a_chat_model_is_one_under_its_own_name(chat: Path) -> None:
    info = inspect(chat)
    assert (info.kind, info.head_config) == ("label", {})
    assert info.name == f"some-qwen@{info.revision[:12]}"
    with pytest.raises(BadRelease, match="not a Clef release"):
        load_clef(info)
    (chat / "chat_template.jinja").write_text("another")
    assert inspect(chat).name != info.name


@pytest.mark.parametrize("trace", ["joint_head.safetensors", "joint_head_config.json", "joint_schema_model.py"])
def test_a_chat_model_with_a_trace_of_a_head_is_a_broken_release(chat: Path, trace: str) -> None:
    (chat / trace).touch()
    with pytest.raises(BadRelease, match="missing beside its config"):
        inspect(chat)


def test_a_release_that_lost_its_head_does_not_answer_in_its_name(chat: Path) -> None:
    with pytest.raises(BadRelease, match="without its joint schema head"):
        inspect(chat.rename(chat.with_name("Clef-flash")))


@pytest.mark.parametrize("missing", ["tokenizer.json", "model.safetensors", "chat_template.jinja"])
def test_a_chat_model_that_is_not_all_there(chat: Path, missing: str) -> None:
    (chat / missing).unlink()
    with pytest.raises(BadRelease, match=missing if missing != "chat_template.jinja" else "or a chat template"):
        inspect(chat)
