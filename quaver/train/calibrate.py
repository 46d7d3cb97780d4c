"""Temperatures of a trained release, one per type of question, fitted on items of the calibration part.

A temperature divides logits, so no order of options changes. Source: Guo et al. 2017
(arXiv 1706.04599). Choices are calibrated on labels that belong to texts of the calibration part;
none of the topic tests is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from quaver.engine.split import SplitReader
from quaver.prompts.split import SplitPrompt
from quaver.train import mixture, tasks
from quaver.train.examples import Example

TYPES = ("noul", "choice", "score")
#: Batches of the mixture that choices are calibrated on.
DRAWS = 4
#: At most so many items of each task, for nouls and scores.
ITEMS = 300
#: Candidate temperatures, 2 % apart.
CANDIDATES = torch.logspace(-0.7, 1.0, 200)

#: Logits and target of one question.
Seen = tuple[Tensor, Tensor]


def fit(prompt: SplitPrompt, reader: SplitReader, folder: Path) -> tuple[float, float, float]:
    """Temperatures of noul, choice and score for a reader that has none yet."""
    seen: dict[str, list[Seen]] = {name: [] for name in TYPES}
    for task in tasks.part_tasks(folder, "calibration"):
        # Files are sorted by label, so every so many items, not the first.
        items = task.items[:: 1 + len(task.items) // ITEMS]
        examples = [Example(task.name, item.state, task.question, item.target) for item in items]
        seen[task.question.type] += answered(prompt, reader, examples)
    drawn = mixture.load(folder, "calibration")
    for seed in range(DRAWS):
        topical = drawn.draw_topical(seed)
        seen["choice"] += answered(prompt, reader, topical)
    noul, choice, score = (temperature(seen[name]) for name in TYPES)
    return noul, choice, score


def answered(prompt: SplitPrompt, reader: SplitReader, examples: Sequence[Example]) -> list[Seen]:
    """Logits of each example beside its target."""
    return [
        (reader.read(prompt.encode(example.state, [example.question])).logits[0], torch.tensor(example.target))
        for example in examples
    ]


def temperature(seen: Sequence[Seen]) -> float:
    """The candidate with the least cross-entropy."""
    losses = [sum(-float(target @ (logits / value).log_softmax(-1)) for logits, target in seen) for value in CANDIDATES]
    return float(CANDIDATES[int(torch.tensor(losses).argmin())])
