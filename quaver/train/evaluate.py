"""Prints the held-out table of a release and of both baselines.

``python -m quaver.train.evaluate --data FOLDER --release FOLDER`` fetches the data if need be. The
cosine baseline is shown at the wording that is best on the very items it is measured on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from quaver.models.encoder import load_encoder
from quaver.train import answerers, metrics, release, sources, tasks
from quaver.train.metrics import Measured, measure
from quaver.train.tasks import Task


@dataclass(frozen=True, slots=True)
class Row:
    """One task of one answerer; ``wording`` is what the cosine baseline read."""

    task: str
    answerer: str
    metric: str
    quality: Measured
    ece: Measured
    wording: str = ""


def judge(task: Task, answerer: str, probabilities: Sequence[Sequence[float]], wording: str = "") -> Row:
    """The task's metric and the expected calibration error of the largest probability.

    Where several people answered, an answer is right to the share of them who gave it.
    """
    p = np.asarray(probabilities)
    target = np.asarray([item.target for item in task.items])
    best = p.argmax(1)
    right = target[np.arange(len(p)), best]
    if task.metric == "accuracy":
        quality = measure(metrics.accuracy, right)
    elif task.metric == "auc":
        quality = measure(metrics.auc, p[:, 0], target[:, 0])
    else:
        wanted = [item.wanted for item in task.items if item.wanted is not None]
        quality = measure(metrics.spearman, p @ np.arange(p.shape[1]), wanted)
    return Row(task.name, answerer, task.metric, quality, measure(metrics.ece, p.max(1), right), wording)


def table(rows: Sequence[Row]) -> str:
    """Markdown, one line per task and answerer."""
    lines = ["| task | n | measure | who | value [95 %] | ECE [95 %] |", "|---|---|---|---|---|---|"]
    for row in rows:
        q = row.quality
        lines.append(f"| {row.task} | {q.n} | {row.metric} | {row.answerer} | {q} | {row.ece} |")
    return "\n".join(lines)


def run(folder: Path, path: Path, baselines: bool, most: int) -> list[Row]:
    """All rows, task by task."""
    ours = answerers.of_reader(*release.open_reader(path))
    base = release.base(folder)
    cosine = answerers.Cosine(load_encoder(base), release.open_prompt(base))
    sparrow = answerers.sparrow(folder)
    rows = []
    for task in tasks.all_tasks(folder, most):
        states = [item.state for item in task.items]
        rows.append(judge(task, "quaver-mini", ours(task.question, states)))
        if baselines:
            tried = [
                judge(task, "MiniLM cosine", cosine.answer(words, states), " / ".join(words[:2]))
                for words in cosine.wordings(task.question)
            ]
            rows.append(max(tried, key=lambda row: row.quality.value))
            rows.append(judge(task, "sparrow-decider 0.2.0", sparrow(task.question, states)))
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="quaver.train.evaluate", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder for the fetched packages")
    parser.add_argument("--release", type=Path, required=True, help="release folder to evaluate")
    parser.add_argument("--no-baselines", action="store_true", help="the release alone")
    parser.add_argument("--most", type=int, default=2000, help="newsgroup texts to read")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    asked = parser.parse_args()
    torch.set_num_threads(2)
    sources.fetch(asked.data)
    rows = run(asked.data, asked.release, not asked.no_baselines, asked.most)
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
