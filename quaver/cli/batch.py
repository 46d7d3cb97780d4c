"""Many requests from a JSON Lines file, with a progress bar, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TextIO

from quaver.cli.talk import progress
from quaver.errors import BadRequest, QuaverError
from quaver.evaluate.files import lines_of, read_text, written_lines

#: Lines under way at once: enough for the engine to read them in company, and far below its queue.
AHEAD = 16


class Asks(Protocol):
    """Answers a body later; a decider behind a thread, or a client."""

    def __call__(self, body: dict[str, Any]) -> Future[dict[str, Any]]: ...


def run(lines: Path, out: Path, questions: Mapping[str, Any] | None, ask: Asks) -> int:
    """Answer every line of ``lines`` that ``out`` does not answer yet, and append to ``out``.

    A line is a body, ``{"state": ..., "questions": ...}``; ``questions`` stand in where it has none.
    A line of ``out`` is ``{"line": n, "asked": digest, "reply": ...}``, or has ``"error"`` in place of the reply,
    in the order of the input. A failed line is asked again by the next run. Returns how many lines failed. Raises
    BadRequest for a file that cannot be read, and for an ``out`` that holds something else or answers to lines that
    have changed since, which is left as it is.
    """
    todo = lines_of(read_text(lines))
    asked = {n: _digest(text, questions) for n, text in todo}
    done = _keep_answered(out, lines, asked)
    failed = 0
    with out.open("a", encoding="utf-8") as sink, progress() as bar:
        task = bar.add_task("answering", total=len(todo), completed=sum(n in done for n, _ in todo))
        for n, answered in _answers([(n, text) for n, text in todo if n not in done], questions, ask):
            failed += "error" in answered
            _write(sink, {"line": n, "asked": asked[n], **answered})
            bar.advance(task)
    return failed


def _answers(
    todo: list[tuple[int, str]], questions: Mapping[str, Any] | None, ask: Asks
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and their answers in order, with a few requests under way ahead of the one that is awaited."""
    # With the decider comes torch, and help must stay quick.
    from quaver.decider.batch import in_order

    results = in_order(lambda text: ask(_body(text, questions)), [text for _, text in todo], AHEAD)
    for (n, _), result in zip(todo, results, strict=True):
        yield n, {"error": str(result)} if isinstance(result, QuaverError) else {"reply": result}


def _digest(text: str, questions: Mapping[str, Any] | None) -> str:
    """Of what a line asks, with the questions that stand in where it has none."""
    return sha256(json.dumps([text.strip(), questions], sort_keys=True).encode()).hexdigest()[:16]


def _body(text: str, questions: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest('a line must be an object such as {"state": ..., "questions": ...}')
    return body if questions is None else {"questions": dict(questions), **body}


def _keep_answered(out: Path, lines: Path, asked: Mapping[int, str]) -> set[int]:
    """Line numbers that ``out`` answers. Failures and a last line cut short are dropped from the file."""
    if not out.exists():
        return set()
    kept: dict[int, dict[str, Any]] = {}
    for record in written_lines(out):
        known = isinstance(record, dict) and {"line", "asked"} <= record.keys()
        if not known or not {"reply", "error"} & record.keys():
            raise BadRequest(f"{out} has lines that are no answers of --batch; name another file for --out")
        if "reply" in record:
            kept[record["line"]] = record
    for n, record in kept.items():
        if record["asked"] != asked.get(n):
            raise BadRequest(
                f"{out} answers line {n} of {lines} as it was before that line or the questions changed; "
                "name another file for --out, or remove this one"
            )
    # Written beside it and then put in its place: an interrupt must not cost the answers that are there.
    fresh = out.with_name(f"{out.name}.new")
    with fresh.open("w", encoding="utf-8") as sink:
        for record in kept.values():
            _write(sink, record)
    fresh.replace(out)
    return set(kept)


def _write(sink: TextIO, record: dict[str, Any]) -> None:
    sink.write(json.dumps(record, ensure_ascii=False) + "\n")
    sink.flush()
