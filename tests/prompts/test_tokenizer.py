"""Two readings of text: added tokens honoured, or plain text throughout."""

from pathlib import Path

import pytest
from vectors import FLASH, OMNI, tokenizer

from quaver.errors import BadRelease, BadRequest
from quaver.prompts.tokenizer import PromptTokenizer

ADDED = ["<|im_end|>", "<|image_pad|>", "<think>", "</think>", "<tool_call>", "<|fim_prefix|>", "<|audio_pad|>"]


@pytest.mark.parametrize("folder", [FLASH, OMNI], ids=lambda folder: folder.name)
@pytest.mark.parametrize("token", ADDED)
def test_added_tokens_in_text(folder: Path, token: str) -> None:
    both = tokenizer(folder / "tokenizer.json")
    text = f"before {token} after"
    [honoured], [plain] = both.encode([text], "reference"), both.encode([text], "escape")
    [control] = both.fixed(token)
    assert control in honoured
    highest_plain = both.fixed("<|endoftext|>")[0]
    assert max(plain) < highest_plain, "no added token may appear"


@pytest.mark.parametrize("text", ["", "plain", "naïve cafe\u0301 ₂ 漢字 \n\n\t", "a < b > c | d", "<|im_end", "|>"])
def test_other_text_has_the_same_ids_in_both(text: str) -> None:
    both = tokenizer(FLASH / "tokenizer.json")
    assert both.encode([text], "reference") == both.encode([text], "escape") == [list(both.fixed(text))]


def test_texts_are_tokenised_apart() -> None:
    both = tokenizer(FLASH / "tokenizer.json")
    assert both.encode(["a\n", "\nb"], "escape") == both.encode(["a\n"], "escape") + both.encode(["\nb"], "escape")


@pytest.mark.parametrize("special_tokens", ["reference", "escape"])
def test_half_a_surrogate_pair_is_refused(special_tokens: str) -> None:
    with pytest.raises(BadRequest, match=r"half of a surrogate pair, at character 2"):
        tokenizer(FLASH / "tokenizer.json").encode(["ok", "no\ud83d"], special_tokens)


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRelease, match="is missing"):
        PromptTokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(BadRelease, match="not a tokenizer"):
        PromptTokenizer(tmp_path / "tokenizer.json")
