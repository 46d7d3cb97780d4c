"""Finds a release and says what it is, before any weight is read.

A release is a folder: a backbone (``config.json``, safetensors, ``tokenizer.json``) with a joint
schema head beside it (``joint_head.safetensors``, ``joint_head_config.json``). The head is not in
the backbone's weight index, so a loader that follows the index would silently serve a plain
language model; that is why the head files decide what a folder is. Decision checkpoints of other makers
are known by a file or an entry of theirs. A folder with no trace of a head and a chat template is a chat
model, which is read by its labels and under its own name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import snapshot_download

from quaver.errors import BadRelease

HEAD_FILES = ("joint_head.safetensors", "joint_head_config.json")
#: Where the text model's configuration lies in config.json, by the backbone's type.
TEXT_CONFIGS = {"qwen3_5": ("text_config",), "qwen3_omni_moe": ("thinker_config", "text_config")}
#: The code in a release that has a head.
HEAD_CODE = "joint_schema_model.py"
#: A fingerprint reads so many blocks of so many bytes of a large file.
BLOCKS, BLOCK = 64, 65_536
DOWNLOADED = ("*.json", "*.safetensors", "*.jinja")

#: Says how a Decision 3.0 checkpoint is asked.
CODES_FILE = "decision_config.json"
#: What the config of Liquid's d1 names as its model's class, whatever the module.
LIQUID_CLASS = ".D1Model"

Kind = Literal["clef", "split", "label", "d3", "liquid"]
#: Kinds without a joint head: what they answer is read off labels.
LABELLED: tuple[Kind, ...] = ("label", "d3", "liquid")


@dataclass(frozen=True, slots=True)
class ReleaseInfo:
    """``kind``: ``clef`` reads jointly with a causal backbone, ``split`` encodes state and schema apart,
    ``label`` reads the next token of a chat model, ``d3`` and ``liquid`` the codes of a decision checkpoint.

    ``config`` and ``head_config`` are the parsed JSON files, the latter empty without a head; ``revision``
    is the commit of a download, the fingerprint of a folder of the caller's own.
    """

    kind: Kind
    path: Path
    config: dict[str, Any]
    head_config: dict[str, Any]
    revision: str

    @property
    def name(self) -> str:
        """What answers call the model, ``name@revision``: two models that differ never share it."""
        return f"{_base_name(self.path, self.config)}@{self.revision[:12]}"

    @property
    def backbone(self) -> str:
        """The type of the backbone, as transformers names it."""
        return str(self.config.get("model_type"))

    @property
    def tokenizer_file(self) -> Path:
        return self.path / "tokenizer.json"


def find(model: str | Path) -> Path:
    """The folder of a release: a local path as it is, or a hub id such as ``owner/name`` or ``owner/name@revision``.

    Hub files are downloaded to the shared cache unless they are there; ``HF_HUB_OFFLINE`` and the
    other settings of huggingface_hub hold. Raises BadRelease when there is no such folder or the
    hub does not give the files.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    name = str(model)
    if isinstance(model, Path) or folder.exists() or name.startswith((".", "/", "~")):
        raise BadRelease(f"{name} is not a folder; name a release folder or a hub id such as owner/name")
    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(DOWNLOADED)))
    except (OSError, ValueError) as error:  # the hub's errors are of these two
        raise BadRelease(f"{name} is neither a folder here nor to be had from the hub: {error}") from error


def inspect(path: Path) -> ReleaseInfo:
    """What the folder holds. Raises BadRelease, with the reason, when that cannot be served."""
    if not path.is_dir():
        raise BadRelease(f"{path} is not a folder")
    config = _read_json(path / "config.json")
    kind = _kind(path, config)
    head_config = {} if kind in LABELLED else _read_head_config(path, config)
    if not (path / "tokenizer.json").is_file():
        raise BadRelease(f"{path / 'tokenizer.json'} is missing; prompts cannot be written without it")
    if kind == "clef":
        _check_clef(path, config, head_config)
    if kind in LABELLED:
        _check_weight_files(path)
    if kind == "d3" and config.get("model_type") != "qwen3_5":
        raise BadRelease(
            f"{path} is a Decision 3.0 checkpoint with a backbone of type {config.get('model_type')!r}, which is not "
            "supported; supported: qwen3_5"
        )
    # The hub's cache names a snapshot's folder by its commit.
    revision = path.name if _repository(path) else fingerprint(path)
    return ReleaseInfo(kind, path, config, head_config, revision)


def fingerprint(path: Path) -> str:
    """A digest of a folder's JSON files, chat template and weights, hexadecimal.

    Large files are sampled at evenly spaced blocks: training moves every tensor, and reading tens of
    gigabytes for a name would delay the start by minutes.
    """
    digest = hashlib.sha256()
    for file in sorted(file for pattern in DOWNLOADED for file in path.glob(pattern)):
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode())
        with file.open("rb") as content:
            for at in range(0, size, max(BLOCK, size // BLOCKS)):
                content.seek(at)
                digest.update(content.read(BLOCK))
    return digest.hexdigest()


def _kind(path: Path, config: dict[str, Any]) -> Kind:
    if config.get("reading") == "split":
        return "split"
    if (path / CODES_FILE).is_file():
        return "d3"
    if config.get("model_type") == "d1_omni":
        raise BadRelease(f"{path} reads options by a head of its own, which is not supported; d1 without omni is")
    auto_map = config.get("auto_map")
    if isinstance(auto_map, dict) and str(auto_map.get("AutoModel")).endswith(LIQUID_CLASS):
        return "liquid"
    # A download that lost its head must not answer in its name as the model that it was trained from.
    meant = "clef" in _base_name(path, config).lower() or (path / HEAD_CODE).is_file()
    has_head = any((path / name).is_file() for name in HEAD_FILES)
    return "clef" if meant or has_head or not _has_chat_template(path) else "label"


def _has_chat_template(path: Path) -> bool:
    files = (path / "chat_template.jinja", path / "chat_template.json")
    config = path / "tokenizer_config.json"
    return any(file.is_file() for file in files) or (config.is_file() and "chat_template" in _read_json(config))


def _base_name(path: Path, config: dict[str, Any]) -> str:
    return str(config.get("name") or _repository(path) or path.resolve().name)


def _repository(path: Path) -> str | None:
    """``owner/name`` of a folder in the hub's cache, which lies at models--owner--name/snapshots/commit."""
    if path.parent.name != "snapshots":
        return None
    return path.parent.parent.name.removeprefix("models--").replace("--", "/")


def _read_head_config(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    missing = [name for name in HEAD_FILES if not (path / name).is_file()]
    if missing:
        what = config.get("model_type", "model")
        raise BadRelease(
            f"{path} is not a release: {' and '.join(missing)} missing beside its config.json; "
            f"a plain {what} cannot answer without its joint schema head or a chat template"
        )
    return _read_json(path / HEAD_FILES[1])


def _check_clef(path: Path, config: dict[str, Any], head_config: dict[str, Any]) -> None:
    model_type = config.get("model_type")
    if model_type not in TEXT_CONFIGS:
        raise BadRelease(
            f"{path} has a backbone of type {model_type!r}, which is not supported yet; "
            f"supported: {', '.join(TEXT_CONFIGS)}"
        )
    text, tied = config, bool(config.get("tie_word_embeddings"))
    for name in TEXT_CONFIGS[model_type]:
        text = text.get(name, {})
        tied |= bool(text.get("tie_word_embeddings"))
    if tied:
        raise BadRelease(f"{path} ties its output embeddings to its input ones; the head needs a lm_head of its own")
    if head_config.get("hidden_size") != text.get("hidden_size"):
        raise BadRelease(
            f"{path} has a head for hidden width {head_config.get('hidden_size')} beside a backbone "
            f"of width {text.get('hidden_size')}; they are of different releases"
        )
    _check_weight_files(path)


def _check_weight_files(path: Path) -> None:
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        names = sorted(set(_read_json(index).get("weight_map", {}).values()))
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        raise BadRelease(f"{path} lacks {', '.join(missing)}; download the release again")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadRelease(f"{file} is missing; this folder is not a release") from error
    except (OSError, ValueError) as error:
        raise BadRelease(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRelease(f"{file} must hold a JSON object")
    return value
