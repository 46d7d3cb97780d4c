"""How well chat models decide by their labels, before and after each correction of bias: ``scripts/eval-label``.

Every drawn item of the held-out tasks of ``quaver.train.tasks`` is read with its options in up to four orders, and
so is a state that says nothing. Everything in the table is arithmetic on these reads, with the prompts and the
corrections of ``quaver serve``. Reads are appended to ``MODEL.jsonl`` as they are made, so a run that was stopped
goes on where it was; ``--table`` prints what is there.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch

from quaver.decider.label import default_length
from quaver.engine import Engine, Policy
from quaver.engine.causal import CausalPrompt, CausalReader
from quaver.engine.job import Finished
from quaver.engine.label import LabelHead
from quaver.evaluate import metrics
from quaver.evaluate.metrics import Columns, Item, Statistic
from quaver.heads.label_bias import OrderAverage, average_orders, cyclic_orders, subtract_prior
from quaver.heads.labels import LabelRead, join, normalised
from quaver.models.chat import load_chat
from quaver.models.placement import step_tokens
from quaver.models.release import ReleaseInfo, inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.label import CONTENT_FREE, LabelPrompt, options
from quaver.prompts.label_encoded import LabelEncoded, LabelPlace
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Json, Question, Request
from quaver.train import sources, tasks
from quaver.train.tasks import Task

#: The tasks that are read. Feeling is asked about tweets, as in the targets of the embedded model.
TASKS = ("20 Newsgroups, 6 classes", "20 Newsgroups, all 20", "Reuters R8", "positive, tweets", "score, tweets", "spam")
#: Orders of the options that are read; those of fewer are among them.
ORDERS = 4
#: The item of a file's line that is no item but the state that says nothing.
PRIOR = -1
#: What is compared: its name, whether the prior is subtracted, and how many orders are averaged.
CORRECTIONS = (
    ("none", False, 1),
    ("prior", True, 1),
    ("2 orders", False, 2),
    ("4 orders", False, 4),
    ("prior, 2 orders", True, 2),
    ("prior, 4 orders", True, 4),
)
RANKING: dict[str, tuple[str, Statistic]] = {
    "noul": ("AUROC", metrics.auroc),
    "score": ("Spearman", metrics.spearman),
}


class LabelModel:
    """A chat model that is asked for all orders at once, on the engine that serves it."""

    def __init__(self, info: ReleaseInfo) -> None:
        turn = load_chat_template(info.path).turn()
        self._prompt = LabelPrompt(PromptTokenizer(info.tokenizer_file), turn, default_length(info))
        self._backbone = load_chat(info.path, torch.device("cpu"), torch.float32)
        head = LabelHead(self._backbone.output_embeddings, self._backbone.softcap)
        tokens, together = step_tokens(self._backbone.device)
        self._engine = Engine(CausalReader(self._backbone, head, 0), Policy(tokens, together=together))

    def submit(self, state: Json, question: Question) -> Asked:
        """Asks ``question`` in each of its orders; all of them share the reading of the state."""
        request, encoded = Request(state, {"question": question}), []
        for order in cyclic_orders(len(question.option_ids), ORDERS):
            encoded += self._prompt.encode(request, on_overflow="refuse", orders={"question": order})
        places: list[LabelPlace] = [place for one in encoded for place in one.places()]
        prompts = [CausalPrompt(place, self._backbone.prepare(place.ids)) for place in places]
        return Asked(tuple(encoded), self._engine.submit(prompts))

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question under way."""

    encoded: tuple[LabelEncoded, ...]
    finished: Future[Finished]

    def reads(self) -> list[LabelRead]:
        """One read per order, when they are there."""
        places = (reading.labels[0] for reading in self.finished.result().readings)
        return [join([next(places) for _ in one.labels.nodes], one.labels.paths) for one in self.encoded]


@dataclass(frozen=True, slots=True)
class Reads:
    """What a model said about one task: reads by order, of each item and of the state that says nothing."""

    of_items: dict[int, list[LabelRead]]
    prior: list[LabelRead]


def drawn(folder: Path, names: Sequence[str], items: int, words: int) -> list[Task]:
    """``items`` of each task, the same ones first however many, their states cut after so many words."""
    found = {task.name: task for task in tasks.all_tasks(folder)}
    drawn = []
    for name in names:
        shuffled = list(found[name].items)
        Random(0).shuffle(shuffled)
        cut = [replace(item, state=first_words(str(item.state), words)) for item in shuffled[:items]]
        drawn.append(replace(found[name], items=cut))
    return drawn


def first_words(text: str, most: int) -> str:
    """The beginning of ``text`` up to the end of its ``most``-th word, spaces as they are."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text if len(ends) <= most else text[: ends[most - 1]]


def collect(folder: Path, file: Path, asked: Sequence[Task], settings: dict[str, Any], until: float) -> None:
    """Appends what ``file`` does not have yet, item by item over all tasks, until then.

    Raises ValueError when the file was begun with other ``settings`` or of another model.
    """
    info = inspect(folder)
    settings = {"model": info.name, **settings}
    file.parent.mkdir(parents=True, exist_ok=True)
    begun, known = load(file)
    if begun is not None and begun != settings:
        raise ValueError(f"{file} was begun with {begun}, not {settings}; name another folder with --out")
    numbers = range(PRIOR, max(len(task.items) for task in asked))
    todo = [(number, task) for number in numbers for task in asked if (task.name, number) not in known]
    if not todo:
        return
    model = LabelModel(info)
    with file.open("a", encoding="utf-8") as sink:
        if begun is None:
            sink.write(json.dumps(settings) + "\n")
        elif not file.read_bytes().endswith(b"\n"):
            sink.write("\n")  # the run was stopped within a line
        # So many at a time keep the engine in company and lose little when the run is stopped.
        for at in range(0, len(todo), len(TASKS)):
            if time.time() > until:
                break
            group = todo[at : at + len(TASKS)]
            waiting = [model.submit(state_of(task, number), task.question) for number, task in group]
            for (number, task), one in zip(group, waiting, strict=True):
                reads = [[r.log_probabilities, r.label_mass, r.argmax_is_label] for r in one.reads()]
                sink.write(json.dumps({"task": task.name, "item": number, "reads": reads}) + "\n")
            sink.flush()
    model.close()


def state_of(task: Task, number: int) -> Json:
    return CONTENT_FREE if number == PRIOR else task.items[number].state


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
            interval(RANKING[task.question.type][1], found) if task.question.type in RANKING else "",
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
    """Markdown: one line per task and correction, of the items that were read."""
    settings, known = load(file)
    heads = ["task", "correction", "accuracy [95 %]", "change [95 %]", "ranking [95 %]", "ECE [95 %]", "mass", "spread"]
    lines = [f"`{settings['model'] if settings else file.stem}`", "", "| " + " | ".join(heads) + " |", "|---" * 8 + "|"]
    for task in asked:
        items = {n: known[task.name, n] for n in range(len(task.items)) if (task.name, n) in known}
        if not items or (task.name, PRIOR) not in known:
            lines.append(f"| {task.name} | not run" + " | " * 6 + "|")
            continue
        counts = np.bincount([int(np.argmax(task.items[n].target)) for n in items])
        name = f"{task.name}; n = {len(items)}, commonest label {counts.max() / counts.sum():.2f}"
        for row in rows_of(task, Reads(items, known[task.name, PRIOR])):
            lines.append("| " + " | ".join([name, *row]) + " |")
            name = ""
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="release folders of chat models")
    parser.add_argument("--data", type=Path, required=True, help="folder for the fetched packages of labelled texts")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files of reads")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK", help="; ".join(TASKS))
    parser.add_argument("--items", type=int, default=100, help="items of each task")
    parser.add_argument("--words", type=int, default=80, help="a state is read up to so many words")
    parser.add_argument("--threads", type=int, default=2, help="threads that compute")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time to read for, of each model")
    parser.add_argument("--table", action="store_true", help="read nothing, print the table of what was read")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    sources.fetch(asked.data)
    held = drawn(asked.data, asked.tasks, asked.items, asked.words)
    for folder in asked.models:
        file = asked.out / f"{folder.name}.jsonl"
        if not asked.table:
            collect(folder, file, held, {"words": asked.words, "orders": ORDERS}, time.time() + 60 * asked.minutes)
        print(table(held, file), end="\n\n")


if __name__ == "__main__":
    main()
