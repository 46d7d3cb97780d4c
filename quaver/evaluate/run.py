"""Ask every record, a few at a time, into an append-only file that can be resumed.

The first line of a run file is its manifest: what is asked of whom, with the configuration that was
read back, settled before the first call. Every other line is the outcome of one record and carries
the manifest's digest. A later line of a record replaces an earlier one, so that a resumed run asks
again only what failed.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from quaver.errors import BadRequest, EngineFault, Overloaded, QuaverError, ServerError, Unavailable
from quaver.evaluate.answerer import Answerer, probabilities
from quaver.evaluate.files import end_line, written_lines
from quaver.evaluate.metrics import Item
from quaver.evaluate.records import Record, Variant

#: Characters of a state that a run file keeps: enough to know a case by, and a file that can be opened.
EXCERPT = 400


@dataclass(frozen=True, slots=True)
class Manifest:
    """``asked`` must be the same for a run to be resumed; ``noted`` (times, machine) may differ."""

    asked: Mapping[str, Any]
    noted: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.asked, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Settings:
    """``concurrency`` records are asked at once; ``retries`` more attempts follow a passing failure.

    ``expect_model``: the versioned name that every answer must carry; None takes that of the first.
    """

    concurrency: int = 8
    retries: int = 3
    expect_model: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record: ``items`` of its labelled questions, probabilities of all its questions by id.

    ``questions`` are their instructions, cut short. ``seconds`` are those of the last attempt.
    """

    record: str
    items: tuple[Item, ...]
    answers: Mapping[str, tuple[float, ...]]
    questions: Mapping[str, str]
    state: str
    attempts: int
    seconds: float
    variant: Variant | None
    model: str | None
    calibration: str | None
    error: str | None
    truncated_tokens: int


def run(
    records: Sequence[Record],
    answerer: Answerer,
    path: Path,
    manifest: Manifest,
    settings: Settings | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Ask what ``path`` does not answer yet and append the outcomes; ``on_progress`` hears how many are done.

    Raises BadRequest when ``path`` belongs to a run that asked something else, and QuaverError as soon
    as an answer comes from another model than expected or than the answers before it: the run would
    measure something else, or two things. Such an answer is not kept.
    """
    settings = settings or Settings()
    lines = _open(path, manifest)
    done = {line["record"] for line in lines if "error" not in line}
    served = _served(path, lines, settings.expect_model)
    todo = [record for record in records if record.id not in done]
    finished = len(records) - len(todo)
    with path.open("a", encoding="utf-8") as sink:
        for line in _ask_all(todo, answerer, settings):
            model = line.get("model")
            if served is not None and "error" not in line and model != served:
                raise QuaverError(f"{path}: answers of {served} were expected and one came from {model}; run stopped")
            served = model or served
            _write(sink, {**line, "manifest": manifest.digest})
            finished += 1
            if on_progress:
                on_progress(finished)


def read_run(path: Path) -> tuple[Manifest, list[Outcome]]:
    """The manifest and, in order of first appearance, the last outcome of every record."""
    manifest, lines = _read(path)
    last = {line["record"]: line for line in lines}
    return manifest, [_outcome(line) for line in last.values()]


def _served(path: Path, lines: Sequence[Mapping[str, Any]], expected: str | None) -> str | None:
    """The model that further answers must come from; None when the first of them decides."""
    before = next((line["model"] for line in lines if line.get("model")), None)
    if expected and before and before != expected:
        raise QuaverError(f"{path}: answers of {expected} were expected and the file has some of {before}")
    return expected or before


def _open(path: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Outcome lines of the run in ``path``, which is begun when it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as sink:
            _write(sink, {"manifest": {"asked": manifest.asked, "noted": manifest.noted}})
        return []
    begun, lines = _read(path)
    if begun.digest != manifest.digest:
        keys = sorted(begun.asked.keys() | manifest.asked.keys())
        changed = [key for key in keys if begun.asked.get(key) != manifest.asked.get(key)]
        raise BadRequest(f"{path} holds another run (different: {', '.join(changed)}); name another file")
    end_line(path)
    return lines


def _read(path: Path) -> tuple[Manifest, list[dict[str, Any]]]:
    try:
        first, *lines = written_lines(path) or [None]
        return Manifest(first["manifest"]["asked"], first["manifest"]["noted"]), lines
    except (KeyError, TypeError) as error:
        raise BadRequest(f"{path} is not a run file of quaver eval; it begins without a manifest") from error


def _ask_all(records: Sequence[Record], answerer: Answerer, settings: Settings) -> Iterator[dict[str, Any]]:
    waiting: set[Future[dict[str, Any]]] = set()
    with ThreadPoolExecutor(settings.concurrency) as pool:
        try:
            for record in records:
                waiting.add(pool.submit(_ask, record, answerer, settings.retries))
                if len(waiting) >= settings.concurrency:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _ask(record: Record, answerer: Answerer, retries: int) -> dict[str, Any]:
    """The line of one record, after as many attempts as it took."""
    line: dict[str, Any] = {"record": record.id, "state": _excerpt(record.state)}
    if record.variant:
        line["variant"] = [record.variant.of, record.variant.relation, record.variant.question]
    labels = record.labels
    line["asked"] = {
        name: {"type": q.type, "text": _excerpt(q.instructions), "options": q.option_ids, "label": labels.get(name)}
        for name, q in record.questions.items()
    }
    for attempt in range(1, retries + 2):
        started = time.perf_counter()
        try:
            answers = answerer.decide(
                record.state, record.questions, images=record.images, audio=record.audio, videos=record.videos
            )
            found = {name: probabilities(question, answers.get(name)) for name, question in record.questions.items()}
        except QuaverError as error:
            line |= {"attempts": attempt, "error": {"kind": type(error).__name__, "message": str(error)}}
            if attempt > retries or not _passing(error):
                return line
            time.sleep(_pause(error, attempt))
        else:
            line.pop("error", None)
            extras = ("model", "input_tokens", "cached_tokens", "truncated_tokens", "calibration")
            known = {name: getattr(answers, name, None) for name in extras}
            seconds = round(time.perf_counter() - started, 6)
            return (
                line
                | {"attempts": attempt, "seconds": seconds, "answers": found}
                | {name: value for name, value in known.items() if value is not None}
            )
    raise AssertionError("the last attempt returns")


def _passing(error: QuaverError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ServerError):
        return error.status in (408, 409, 425, 429) or error.status >= 500
    return isinstance(error, (Overloaded, Unavailable, EngineFault))


def _pause(error: QuaverError, attempt: int) -> float:
    """Seconds to wait: what the server asked for, else doubling from a quarter, with jitter."""
    asked = error.retry_after if isinstance(error, Overloaded) else 0.0
    return max(asked, 0.25 * 2.0**attempt * random.uniform(0.5, 1.0))


def _outcome(line: Mapping[str, Any]) -> Outcome:
    answers = line.get("answers", {})
    items = tuple(
        Item(line["record"], name, asked["type"], tuple(asked["options"]), asked["label"], tuple(answers.get(name, ())))
        for name, asked in line["asked"].items()
        if asked["label"] is not None
    )
    error = line.get("error")
    return Outcome(
        line["record"],
        items,
        {name: tuple(p) for name, p in answers.items()},
        {name: asked["text"] for name, asked in line["asked"].items()},
        line["state"],
        line["attempts"],
        line.get("seconds", 0.0),
        Variant(*line["variant"]) if "variant" in line else None,
        line.get("model"),
        line.get("calibration"),
        f"{error['kind']}: {error['message']}" if error else None,
        line.get("truncated_tokens", 0),
    )


def _excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXCERPT else text[:EXCERPT] + "…"


def _write(sink: TextIO, line: Mapping[str, Any]) -> None:
    sink.write(json.dumps(line, ensure_ascii=False) + "\n")
    sink.flush()  # an interrupt costs the line that is being written, no other
