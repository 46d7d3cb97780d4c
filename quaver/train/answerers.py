"""Who answers the held-out tasks: a release, and two baselines.

An answerer is a function of a question and states; it gives one row of probabilities per state.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quaver.engine.split import SplitReader
from quaver.models.encoder import Encoder
from quaver.prompts.render import render
from quaver.prompts.split import SplitPrompt
from quaver.questions import Choice, Json, Noul, Question, Score
from quaver.train.batched import read_texts

Answerer = Callable[[Question, Sequence[Json]], list[list[float]]]


def of_reader(prompt: SplitPrompt, reader: SplitReader) -> Answerer:
    """A split release, one state at a time as a server reads it."""

    def answer(question: Question, states: Sequence[Json]) -> list[list[float]]:
        return [reader.read(prompt.encode(state, [question])).logits[0].softmax(-1).tolist() for state in states]

    return answer


#: Wordings of an option that the cosine baseline may choose from, by type; ``{}`` is the option.
WORDINGS: dict[str, tuple[str, ...]] = {
    "choice": ("{}", "topic: {}", "about {}", "This text is about {}.", "a news story about {}"),
    "noul": ("",),
    "score": ("{}", "The feeling is {}.", "a {} text", "I feel {}."),
}
#: Sentences for yes and no that the cosine baseline may choose from.
SIDES = (
    ("I am happy.", "I am sad."),
    ("This is great, I love it.", "This is terrible, I hate it."),
    ("very good, wonderful, happy", "very bad, awful, angry"),
    ("The tone of this text is positive.", "The tone of this text is negative."),
    ("This email is spam.", "This email is a personal message."),
    ("buy now, special offer, make money fast", "a discussion among colleagues"),
)


class Cosine:
    """The untrained encoder: softmax over 20 times the cosine of state and option."""

    def __init__(self, encoder: Encoder, prompt: SplitPrompt) -> None:
        self.encoder, self.prompt = encoder, prompt
        self._states: dict[str, Tensor] = {}

    def wordings(self, question: Question) -> list[list[str]]:
        """Every wording of the options that the baseline is allowed; the caller keeps the best."""
        match question:
            case Noul():
                return [list(sides) for sides in SIDES]
            case Choice():
                return [[w.format(name) for name in question.option_ids] for w in WORDINGS["choice"]]
            case Score():
                return [[w.format(render(level)) for level in question.criteria] for w in WORDINGS["score"]]

    def answer(self, options: Sequence[str], states: Sequence[Json]) -> list[list[float]]:
        """Probabilities for one wording."""
        vectors = functional.normalize(self._vectors(options), dim=-1)
        new = [text for text in dict.fromkeys(map(render, states)) if text not in self._states]
        for at in range(0, len(new), 64):
            self._states.update(zip(new[at : at + 64], self._vectors(new[at : at + 64]), strict=True))
        rows = functional.normalize(torch.stack([self._states[render(state)] for state in states]), dim=-1)
        probabilities: list[list[float]] = (20 * rows @ vectors.T).softmax(-1).tolist()
        return probabilities

    @torch.inference_mode()
    def _vectors(self, words: Sequence[str]) -> Tensor:
        texts = self.prompt.texts(words)
        rows = read_texts(lambda windows: torch.cat(self.encoder(windows)), texts)
        return rows.mean(rows.flat)[rows.of(texts)]


def sparrow(folder: Path) -> Answerer:
    """``sparrow-decider`` with its general model, unpacked in ``folder``."""
    sys.path.insert(0, str(folder / "sparrow_decider"))
    decider = importlib.import_module("sparrow_decider").Decider.load()

    def answer(question: Question, states: Sequence[Json]) -> list[list[float]]:
        asked = {"q": _wire(question)}
        return [_probabilities(question, decider.ask(render(state), asked)["q"]) for state in states]

    return answer


def _wire(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"type": question.type, "instructions": question.instructions}
    if isinstance(question, Choice):
        return {**body, "criteria": {name: name for name in question.option_ids}}
    return body if question.criteria is None else {**body, "criteria": list(question.criteria)}


def _probabilities(question: Question, given: dict[str, Any]) -> list[float]:
    if isinstance(question, Noul):
        return [given["noul"], 1 - given["noul"]]
    found = given["probabilities"]
    return [found[name] for name in question.option_ids] if isinstance(found, dict) else list(found)
