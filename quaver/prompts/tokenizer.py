"""A release's ``tokenizer.json`` with two ways to read text of a caller.

``reference`` honours every added token in the text, as Clef releases do: a state that contains
``<|im_end|>`` closes the turn. ``escape`` tokenises the same text as if no added token existed, so
nothing that a caller writes can act as a control token. Text without added tokens has the same
ids in both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from quaver.errors import BadRelease, BadRequest

SpecialTokens = Literal["reference", "escape"]


class PromptTokenizer:
    """Both readings of one ``tokenizer.json``.

    Raises BadRelease when the file is missing or is no tokenizer.
    """

    def __init__(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
            spec = json.loads(text)
            self._honouring = Tokenizer.from_str(text)
            self._plain = Tokenizer.from_str(json.dumps({**spec, "added_tokens": []}))
        except FileNotFoundError as error:
            raise BadRelease(f"{file} is missing; a release needs its tokenizer.json") from error
        except Exception as error:  # tokenizers raises bare Exception for a bad file
            raise BadRelease(f"{file} is not a tokenizer: {error}") from error
        # Pieces of our own are some hundreds, most of them the numbers of options.
        self.fixed = lru_cache(maxsize=4096)(self._fixed)
        #: The texts that are control tokens.
        self.added = tuple(token["content"] for token in spec.get("added_tokens", ()))

    def parted(self, text: str) -> tuple[str, str]:
        """``text`` as far as the end of its last control token, and the plain words after it."""
        # Gemma lists line breaks among its added tokens; they act as nothing.
        control = [token for token in self.added if token in text and not token.isspace()]
        cut = max((text.rfind(token) + len(token) for token in control), default=0)
        return text[:cut], text[cut:]

    def _fixed(self, text: str) -> tuple[int, ...]:
        """Ids of a piece that this project wrote; control tokens count."""
        return tuple(self._honouring.encode(text, add_special_tokens=False).ids)

    def encode(self, texts: Sequence[str], special_tokens: SpecialTokens) -> list[list[int]]:
        """Ids of each text on its own, in one call.

        Raises BadRequest for text that is not valid Unicode (half of a surrogate pair).
        """
        for text in texts:
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise BadRequest(
                    f"text holds {text[error.start]!r}, half of a surrogate pair, at character {error.start}; "
                    "send valid Unicode"
                ) from error
        tokenizer = self._honouring if special_tokens == "reference" else self._plain
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
