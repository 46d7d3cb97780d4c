"""How well chat models decide by their labels, before and after each correction of bias: ``scripts/eval-label``.

Every drawn item of the held-out tasks of ``quaver.train.tasks`` is read with its options in up to four orders, and
so is a state that says nothing. Everything in the table is arithmetic on these reads, with the prompts and the
corrections of ``quaver serve``. Reads are appended to ``MODEL.jsonl`` as they are made, so a run that was stopped
goes on where it was; ``--table`` prints what is there, ``--write PAGE`` also puts it into a page of the docs.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from label_tables import ORDERS, PRIOR, load, table, write

from quaver.decider.label import default_length
from quaver.engine import Engine, Policy
from quaver.engine.causal import CausalPrompt, CausalReader
from quaver.engine.job import Finished
from quaver.engine.label import LabelHead
from quaver.heads.label_bias import cyclic_orders
from quaver.heads.labels import LabelRead, join
from quaver.models.chat import load_chat
from quaver.models.placement import resolve_dtype, step_tokens
from quaver.models.release import ReleaseInfo, inspect
from quaver.prompts.chat_template import load_chat_template
from quaver.prompts.label import CONTENT_FREE, LabelPrompt
from quaver.prompts.label_encoded import LabelEncoded, LabelPlace
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Json, Question, Request
from quaver.train import sources, tasks
from quaver.train.tasks import Task

#: The tasks that are read. Feeling is asked about tweets, as in the targets of the embedded model.
TASKS = ("20 Newsgroups, 6 classes", "20 Newsgroups, all 20", "Reuters R8", "positive, tweets", "score, tweets", "spam")


class LabelModel:
    """A chat model that is asked for all orders at once, on the engine that serves it."""

    def __init__(self, info: ReleaseInfo, dtype: str) -> None:
        turn = load_chat_template(info.path).turn()
        self._prompt = LabelPrompt(PromptTokenizer(info.tokenizer_file), turn, default_length(info))
        cpu = torch.device("cpu")
        self._backbone = load_chat(info.path, cpu, resolve_dtype(dtype, cpu))
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
    model = LabelModel(info, settings["dtype"])
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


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="release folders of chat models")
    parser.add_argument("--data", type=Path, required=True, help="folder for the fetched packages of labelled texts")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files of reads")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK", help="; ".join(TASKS))
    parser.add_argument("--items", type=int, default=100, help="items of each task")
    parser.add_argument("--words", type=int, default=80, help="a state is read up to so many words")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="what the models compute in"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads that compute")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time to read for, of each model")
    parser.add_argument("--table", action="store_true", help="read nothing, print the table of what was read")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into this page too")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    sources.fetch(asked.data)
    settings = {"words": asked.words, "orders": ORDERS, "dtype": asked.dtype}
    held = drawn(asked.data, asked.tasks, asked.items, asked.words)
    tables = []
    for folder in asked.models:
        file = asked.out / f"{folder.name}.jsonl"
        if not asked.table:
            collect(folder, file, held, settings, time.time() + 60 * asked.minutes)
        tables.append(table(held, file))
        print(tables[-1], end="\n\n", flush=True)
    if asked.write:
        write(asked.write, "\n\n".join(tables))


if __name__ == "__main__":
    main()
