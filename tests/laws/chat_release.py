"""Tiny chat models as release folders: random weights beside a real tokenizer and chat template."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import chat_families
from chat_models import folder
from tokenizers import Tokenizer


def chat_release(to: Path, family: str = "llama", of: str = "smollm2", **changes: Any) -> Path:
    """A release in ``to``; the test is skipped where the package with the tokenizer is not installed."""
    source = folder(of)
    size = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size(with_added_tokens=True)
    chat_families.save(family, to, vocab_size=size, max_position_embeddings=2048, **changes)
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, to / file.name)
    return to
