"""Labels of a bfloat16 model that tie, with 24 options, beside what transformers' own bfloat16 logits say of them."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from chat_release import chat_release
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import quaver

STATE = "The parcel came late and the box was torn"
OPTIONS = [f"code {number:02d}" for number in range(24)]
LETTERS = string.ascii_uppercase[:24]
BODY = {
    "state": STATE,
    "questions": {"q": {"type": "choice", "instructions": "Which code?", "criteria": dict.fromkeys(OPTIONS)}},
}


def answered(release: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """The options' probabilities in bfloat16, and the reply."""
    with quaver.load(str(release), dtype="bfloat16") as decider:
        reply = decider.systemone(BODY)
    return reply["answers"]["q"]["probabilities"], reply


def own_logits(release: Path) -> list[float]:
    """Of the letters, by transformers alone, in bfloat16."""
    tokenizer = AutoTokenizer.from_pretrained(release)
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, OPTIONS, strict=True))
    asked = f"{STATE}\n\n---\nQuestion: Which code?\n{listed}\nReply with the letter only."
    ids: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": asked}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(release, dtype=torch.bfloat16)(**ids).logits[0, -1]
    return [float(logits[tokenizer.convert_tokens_to_ids(letter)]) for letter in LETTERS]


def tokens(release: Path, text: str) -> list[int]:
    ids: list[int] = AutoTokenizer.from_pretrained(release).encode(text, add_special_tokens=False)
    return ids


def with_table(release: Path, change: Callable[[torch.Tensor], None]) -> None:
    """The release with another output table."""
    weights = {name: weight.clone() for name, weight in load_file(release / "model.safetensors").items()}
    change(weights["lm_head.weight"])
    save_file(weights, release / "model.safetensors", metadata={"format": "pt"})


def test_labels_that_only_rounding_makes_equal_stay_apart(tmp_path: Path) -> None:
    """Logits about 20, as those of real models are, where steps of bfloat16 are 0.125."""
    release = chat_release(tmp_path / "tiny")
    own = own_logits(release)
    likeliest = LETTERS[own.index(max(own))]
    letters = [token for letter in LETTERS for token in tokens(release, letter)]

    def lift(table: torch.Tensor) -> None:
        table[letters] += table[tokens(release, likeliest)] * 20 / max(own)

    with_table(release, lift)
    lifted = own_logits(release)
    assert min(lifted) > 16 and len(set(lifted)) < len(LETTERS)
    probabilities, reply = answered(release)
    assert len(set(probabilities.values())) == len(OPTIONS)
    assert "x_ties" not in reply


def test_labels_that_are_equal_share_the_lead_and_are_told(tmp_path: Path) -> None:
    """The likeliest letter's rows of the output table are given to the letter that was least likely too."""
    release = chat_release(tmp_path / "tiny")
    before, _ = answered(release)
    best, least = (LETTERS[OPTIONS.index(pick(before, key=before.__getitem__))] for pick in (max, min))
    written = [[*tokens(release, letter), *tokens(release, f" {letter}")] for letter in (best, least)]
    assert [len(ways) for ways in written] == [2, 2]

    def copy(table: torch.Tensor) -> None:
        table[written[1]] = table[written[0]]

    with_table(release, copy)
    after, reply = answered(release)
    tied = sorted(OPTIONS[LETTERS.index(letter)] for letter in (best, least))
    assert reply["x_ties"] == {"q": tied}
    assert after[tied[0]] == after[tied[1]] == max(after.values())
    assert len(set(after.values())) == len(OPTIONS) - 1
