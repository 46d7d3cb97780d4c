"""Reads of labels to tables of what every correction of bias changes; ``benchmarks/label_reads.py`` makes the reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from quaver.evaluate import metrics
from quaver.evaluate.metrics import Columns, Item, Statistic
from quaver.heads.label_bias import OrderAverage, average_orders, cyclic_orders, subtract_prior
from quaver.heads.labels import LabelRead, normalised
from quaver.prompts.label import options
from quaver.train.tasks import Task

#: Orders of the options that are read; those of fewer are among them.
ORDERS = 4
#: The item of a file's line that is no item but the state that says nothing.
PRIOR = -1
#: What stands around the tables in a page.
MARKS = ("<!-- tables of scripts/eval-label -->\n", "<!-- end of tables -->")
#: What is compared: its name, whether the prior is subtracted, and how many orders are averaged.
CORRECTIONS = (
    ("none", False, 1),
    ("prior", True, 1),
    ("2 orders", False, 2),
    ("4 orders", False, 4),
    ("prior, 2 orders", True, 2),
    ("prior, 4 orders", True, 4),
)
#: How well a question's answers rank its items, by its type.
RANKING: dict[str, Statistic] = {"noul": metrics.auroc, "score": metrics.spearman}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a model said about one task: reads by order, of each item and of the state that says nothing."""

    of_items: dict[int, list[LabelRead]]
    prior: list[LabelRead]


def load(file: Path) -> tuple[dict[str, Any] | None, dict[tuple[str, int], list[LabelRead]]]:
    """The settings that a file was begun with, and its reads by task and item."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found = {}
    for line in lines[1:]:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a line that a stopped run left unfinished
        reads = [LabelRead(tuple(logs), mass, likeliest) for logs, mass, likeliest in row["reads"]]
        found[row["task"], row["item"]] = reads
    return (json.loads(lines[0]) if lines else None), found


def used(task: Task, count: int) -> list[int]:
    """Which of the orders that were read are those of ``count`` orders."""
    options = len(task.question.option_ids)
    every = cyclic_orders(options, ORDERS)
    return [every.index(order) for order in cyclic_orders(options, count)]


def corrected(task: Task, reads: Sequence[LabelRead], prior: Sequence[LabelRead] | None, count: int) -> OrderAverage:
    """The answer in the task's order of options, of reads in all orders; ``prior`` None leaves bias in."""
    ids = task.question.option_ids
    written = [ids.index(option.id) for option in options(task.question)]
    every = cyclic_orders(len(ids), ORDERS)
    rows, orders = [], []
    for number in used(task, count):
        logs = reads[number].log_probabilities
        rows.append(subtract_prior(logs, prior[number].log_probabilities) if prior else normalised(logs))
        orders.append([written[place] for place in every[number]])
    return average_orders(rows, orders)


def rows_of(task: Task, reads: Reads) -> Iterator[list[str]]:
    """Per correction, the cells of the table's line."""
    numbers = sorted(reads.of_items)
    plain: Columns | None = None
    for name, with_prior, count in CORRECTIONS:
        if count > len(task.question.option_ids):
            continue
        prior = reads.prior if with_prior else None
        answers = [corrected(task, reads.of_items[number], prior, count) for number in numbers]
        found = columns_of(task, numbers, answers)
        plain = plain or found
        change = replace(found, right=found.right - plain.right)
        masses = [reads.of_items[number][order].label_mass for number in numbers for order in used(task, count)]
        yield [
            name,
            interval(metrics.accuracy, found),
            "" if found is plain else interval(metrics.accuracy, change, signed=True),
            interval(RANKING[task.question.type], found) if task.question.type in RANKING else "",
            interval(metrics.calibration_error, found),
            f"{fmean(masses):.3f}",
            "" if count == 1 else f"{fmean(max(answer.spread) for answer in answers):.3f}",
        ]


def columns_of(task: Task, numbers: Sequence[int], answers: Sequence[OrderAverage]) -> Columns:
    """As ``quaver eval`` has them; a score's truth is the mean rating and its label the level most people chose."""
    chosen = [task.items[number] for number in numbers]
    ids, kind = task.question.option_ids, task.question.type
    found = metrics.columns(
        [
            Item(str(number), task.name, kind, ids, int(np.argmax(item.target)), answer.probabilities)
            for number, item, answer in zip(numbers, chosen, answers, strict=True)
        ]
    )
    wanted = [item.wanted for item in chosen if item.wanted is not None]
    return replace(found, truth=np.asarray(wanted)) if wanted else found


def interval(statistic: Statistic, found: Columns, signed: bool = False) -> str:
    """A value with its 95 % interval: Wilson's for a rate, by resampled items for everything else."""
    if statistic is metrics.accuracy and not signed:
        around = metrics.rate_interval(found.right, found.cluster)
    else:
        around = metrics.bootstrap({"": statistic}, found, np.random.default_rng(0))[""]
    sign = "+" if signed else ""
    return f"{statistic(found):{sign}.3f} [{around.low:{sign}.3f}, {around.high:{sign}.3f}]"


def table(asked: Sequence[Task], file: Path) -> str:
    """Markdown: one line per task and correction; a task of which items are missing was not run."""
    settings, known = load(file)
    heads = ["task", "correction", "accuracy [95 %]", "change [95 %]", "ranking [95 %]", "ECE [95 %]", "mass", "spread"]
    title = f"`{settings['model']}`, {settings['dtype']}" if settings else f"`{file.stem}`"
    lines = [title, "", "| " + " | ".join(heads) + " |", "|---" * 8 + "|"]
    for task in asked:
        items = {n: known[task.name, n] for n in range(len(task.items)) if (task.name, n) in known}
        if len(items) < len(task.items) or (task.name, PRIOR) not in known:
            lines.append(f"| {task.name}; {len(items)} of {len(task.items)} items | not run" + " | " * 6 + "|")
            continue
        counts = np.bincount([int(np.argmax(task.items[n].target)) for n in items])
        name = f"{task.name}; n = {len(items)}, commonest label {counts.max() / counts.sum():.2f}"
        for row in rows_of(task, Reads(items, known[task.name, PRIOR])):
            lines.append("| " + " | ".join([name, *row]) + " |")
            name = ""
    return "\n".join(lines)


def write(page: Path, tables: str) -> None:
    """Puts ``tables`` between the marks of ``page``. Raises ValueError where it has none."""
    begin, end = MARKS
    before, *rest = page.read_text(encoding="utf-8").split(begin)
    if len(rest) != 1 or end not in rest[0]:
        raise ValueError(f"{page} has no place for tables: {begin.strip()} and {end}")
    page.write_text(f"{before}{begin}{tables}\n{end}{rest[0].partition(end)[2]}", encoding="utf-8")
