"""Writes a chat model in a GGUF file as a release folder: python scripts/convert_gguf.py FILE.gguf FOLDER

transformers widens the file's quantised weights, which takes tens of seconds, and refuses to save the result as it
is; here they are given to a model that knows of no quantisation. Needs the package gguf.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


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


if __name__ == "__main__":
    source, folder = map(Path, sys.argv[1:])
    convert(source, folder)
