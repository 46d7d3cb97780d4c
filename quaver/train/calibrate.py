"""Temperatures of a trained release, by type of question, fitted on items of the calibration part.

A temperature divides logits, so no order of options changes. Source: Guo et al. 2017
(arXiv 1706.04599). That of a choice grows with its options. Choices are calibrated on labels that
belong to texts of the calibration part; none of the topic tests is touched.
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
#: At most so many items of each task, for nouls and scores.
ITEMS = 300
#: Batches of topical choices and yes/no questions.
DRAWS = 6
TEMPERATURES = torch.logspace(-1.0, 0.5, 100).tolist()
#: A choice's temperature is multiplied by two to this power when its options double.
GROWTHS = torch.linspace(-0.2, 0.8, 26).tolist()

#: Logits and target of one question.
Seen = tuple[Tensor, Tensor]


def fit(prompt: SplitPrompt, reader: SplitReader, folder: Path) -> list[tuple[float, float]]:
    """(temperature, growth) of noul, choice and score for a reader that has none yet."""
    seen: dict[str, list[Seen]] = {name: [] for name in TYPES}
    for task in tasks.part_tasks(folder, "calibration"):
        # Files are sorted by label, so every so many items, not the first.
        items = task.items[:: 1 + len(task.items) // ITEMS]
        examples = [Example(task.name, item.state, task.question, item.target) for item in items]
        seen[task.question.type] += answered(prompt, reader, examples)
    drawn = mixture.load(folder, "calibration")
    for seed in range(DRAWS):
        examples = drawn.draw_pairs(seed)
        for name in TYPES:
            seen[name] += answered(prompt, reader, [e for e in examples if e.question.type == name])
    return [best(seen[name], GROWTHS if name == "choice" else [0.0]) for name in TYPES]


def answered(prompt: SplitPrompt, reader: SplitReader, examples: Sequence[Example]) -> list[Seen]:
    """Logits of each example beside its target."""
    return [
        (reader.read(prompt.encode(example.state, [example.question])).logits[0], torch.tensor(example.target))
        for example in examples
    ]


def best(seen: Sequence[Seen], growths: Sequence[float]) -> tuple[float, float]:
    """The temperature and growth with the least cross-entropy."""
    sizes = torch.tensor([len(logits) for logits, _ in seen])
    pad = torch.nn.utils.rnn.pad_sequence
    logits = pad([row for row, _ in seen], batch_first=True, padding_value=-1e4)
    target = pad([row for _, row in seen], batch_first=True)

    def loss(temperature: float, growth: float) -> float:
        divisor = temperature * (sizes / 2) ** growth
        return -float((target * (logits / divisor.unsqueeze(1)).log_softmax(-1)).sum())

    return min(((t, g) for g in growths for t in TEMPERATURES), key=lambda pair: loss(*pair))
