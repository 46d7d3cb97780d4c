"""Request bodies of exact sizes for a release, without meaning: what is measured depends on lengths alone."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from quaver.prompts.clef import ClefPrompt
from quaver.prompts.encoded import Encoded
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.protocol import parse

Questions = dict[str, dict[str, Any]]
SHORTEST: Questions = {"q": {"type": "choice", "criteria": {"a": None, "b": None}}}


class Texts:
    """Writes for the tokenizer of ``release``, from words that are one token each."""

    def __init__(self, release: Path) -> None:
        tokenizer = Tokenizer.from_file(str(release / "tokenizer.json"))
        words = sorted(word[1:] for word in tokenizer.get_vocab() if re.fullmatch("Ġ[a-z]{2,}", word))
        self._words = [word for word in words if len(tokenizer.encode(f" {word}").ids) == 1]
        self._prompt = ClefPrompt(PromptTokenizer(release / "tokenizer.json"))

    def state(self, tokens: int, seed: object) -> str:
        """A text of so many tokens; a longer one of the same seed begins with it."""
        return "".join(f" {word}" for word in random.Random(str(seed)).choices(self._words, k=tokens))

    def questions(self, tokens: int, seed: object) -> Questions:
        """A noul, a choice and a score of ``tokens`` together with the closing text, or the fewest they can have."""
        fewest = self.schema_tokens(self._questions(1, seed))
        return self._questions(max(1, 1 + tokens - fewest), seed)

    def sized(self, tokens: int, seed: object) -> dict[str, Any]:
        """A body of ``tokens`` in all: three questions about a state, or one where three do not fit.

        When one does not fit either, the prompt has the fewest tokens that it can have.
        """
        for questions in (self.questions(0, seed), SHORTEST):
            fewest = len(self.encoded(body("", questions)).ids)
            if tokens > fewest:
                break
        return body(self.state(max(1, tokens - fewest), seed), questions)

    def schema_tokens(self, questions: Questions) -> int:
        """How many tokens follow the state."""
        encoded = self.encoded(body("", questions))
        return len(encoded.ids) - encoded.state_end

    def encoded(self, of: dict[str, Any]) -> Encoded:
        """The prompt that a body becomes."""
        return self._prompt.encode(parse(of).request)

    def _questions(self, words: int, seed: object) -> Questions:
        one, two, three = random.Random(str(seed)).sample(self._words, 3)
        return {
            "a": {"type": "noul", "instructions": self.state(words, seed)},
            "b": {"type": "choice", "criteria": {one: None, two: None}},
            "c": {"type": "score", "criteria": [f" {two}", f" {three}"]},
        }


def body(state: str, questions: Questions) -> dict[str, Any]:
    """A ``/v1/systemone`` body."""
    return {"model": "benchmark", "state": state, "questions": questions}


def probabilities(reply: dict[str, Any]) -> list[float]:
    """All numbers of a reply that are probabilities, in the order of its answers."""
    numbers: list[float] = []
    for answer in reply["answers"].values():
        numbers += answer["probabilities"].values() if "probabilities" in answer else [answer["noul"]]
    return numbers


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference of two replies' probabilities."""
    return max(abs(a - b) for a, b in zip(probabilities(one), probabilities(other), strict=True))
