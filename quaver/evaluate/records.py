"""Labelled records: what to ask, and the right answers, from JSON Lines, CSV or a Python function."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quaver.errors import BadRequest
from quaver.evaluate.files import json_lines
from quaver.protocol.systemone import parse
from quaver.questions import Json, MediaSource, Noul, Question

MEDIA = ("images", "audio", "videos")


@dataclass(frozen=True, slots=True)
class Variant:
    """Says that a record repeats question ``question`` of record ``of`` in other words or surroundings."""

    of: str
    relation: str
    question: str


@dataclass(frozen=True, slots=True)
class Record:
    """One state with its questions. ``labels``: question id to the index of the right option in ``option_ids``.

    Questions without a label are asked and not scored. ``paraphrases``: other instructions with the same
    meaning, by question id. ``variant`` is None for a record of the data.
    """

    id: str
    state: Json
    questions: Mapping[str, Question]
    labels: Mapping[str, int]
    images: tuple[MediaSource, ...] = ()
    audio: tuple[MediaSource, ...] = ()
    videos: tuple[MediaSource, ...] = ()
    paraphrases: Mapping[str, Json] = field(default_factory=dict)
    variant: Variant | None = None


def read_records(source: str, questions: Mapping[str, Any] | None = None, limit: int | None = None) -> list[Record]:
    """Records of ``source``: a ``.jsonl`` or ``.csv`` file, or ``module:function`` that returns mappings.

    A line, or a mapping, is ``{"id", "state", "questions", "labels", "images", "audio", "videos",
    "paraphrases"}``; only ``state`` and ``labels`` are required where ``questions`` (as in a
    ``/v1/systemone`` body) are given for all. In CSV the columns named like a question hold its label;
    ``id`` and ``state`` are themselves, and without a ``state`` column the other columns make the state.
    A label is true or false, an option's id, or a level's index or text. Raises BadRequest with the place.
    """
    path = Path(source)
    if path.suffix == ".csv":
        rows: Iterable[Any] = _csv_rows(path, questions or {})
    elif path.is_file():
        rows = json_lines(path)
    else:
        rows = _function_rows(source)
    records: list[Record] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        if limit is not None and len(records) == limit:
            break
        record = _record(row, questions, path.parent, f"{source}, record {number}", str(number))
        if record.id in seen:
            raise BadRequest(f"{source}, record {number}: the id {record.id!r} appears twice")
        seen.add(record.id)
        records.append(record)
    if not records:
        raise BadRequest(f"{source} has no records")
    if not any(record.labels for record in records):
        raise BadRequest(f"{source}: no record has a label, so there is nothing to measure")
    return records


def digest(records: Iterable[Record]) -> str:
    """sha256 of everything that is asked and of the labels, media files by their content."""
    total = hashlib.sha256()
    for record in records:
        questions = {name: [q.type, q.instructions, _plain(q.criteria)] for name, q in record.questions.items()}
        content = [record.id, record.state, questions, dict(record.labels), dict(record.paraphrases)]
        total.update(json.dumps(content, sort_keys=True, default=str).encode())
        for item in (*record.images, *record.audio, *record.videos):
            total.update(item.read_bytes() if isinstance(item, Path) else str(item).encode())
    return total.hexdigest()


def label_index(question: Question, label: Json) -> int:
    """The option that a label names. Raises BadRequest when it names none."""
    if isinstance(question, Noul):
        if isinstance(label, str) and label.strip().lower() in ("true", "false"):
            label = label.strip().lower() == "true"
        if isinstance(label, bool):
            return 0 if label else 1
        raise BadRequest(f"label {label!r} of a yes/no question must be true or false")
    ids = question.option_ids
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if label in ids:
        return ids.index(label)
    if question.type == "score" and label in question.criteria:
        return list(question.criteria).index(label)
    raise BadRequest(f"label {label!r} is none of the options: {', '.join(ids[:20])}")


def _csv_rows(path: Path, questions: Mapping[str, Any]) -> Iterable[Any]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                if None in row:
                    raise BadRequest(f"{path}, line {reader.line_num}: there are more cells than columns")
                rest = {key: value for key, value in row.items() if key not in questions and key != "id"}
                labels = {key: row[key] for key in questions if row.get(key)}
                yield {"id": row.get("id"), "state": rest.get("state", rest), "labels": labels}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f"{path}: cannot be read as CSV: {error}") from error


def _function_rows(source: str) -> Iterable[Any]:
    module, colon, name = source.partition(":")
    if not colon:
        raise BadRequest(f"{source} is neither a file nor module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadRequest(f"{source}: {error}") from error
    rows: Iterable[Any] = function()
    return rows


def _record(row: Any, shared: Mapping[str, Any] | None, folder: Path, where: str, number: str) -> Record:
    if not isinstance(row, Mapping) or "state" not in row or not isinstance(row.get("labels"), Mapping):
        raise BadRequest(f'{where}: expected an object with "state" and "labels"')
    media = {kind: [_beside(folder, item) for item in row.get(kind) or ()] for kind in MEDIA}
    body = {"state": row["state"], "questions": row.get("questions") or shared or {}}
    try:
        request = parse(body | {kind: items for kind, items in media.items() if items}, local=True).request
        strangers = (row["labels"].keys() | (row.get("paraphrases") or {}).keys()) - request.questions.keys()
        if strangers:
            raise BadRequest(f"{sorted(strangers)[0]!r} has a label or paraphrase and is not a question")
        labels = {name: label_index(request.questions[name], label) for name, label in row["labels"].items()}
    except BadRequest as error:
        raise BadRequest(f"{where}: {error}") from error
    return Record(
        str(row.get("id") or number),
        request.state,
        request.questions,
        labels,
        request.images,
        request.audio,
        request.videos,
        dict(row.get("paraphrases") or {}),
    )


def _beside(folder: Path, item: Any) -> Any:
    """A media entry that names a file next to the records becomes its path."""
    if isinstance(item, str) and not item.startswith("data:") and len(item) < 1024 and (folder / item).is_file():
        return folder / item
    return item


def _plain(criteria: Any) -> Any:
    return list(criteria.items()) if isinstance(criteria, Mapping) else criteria
