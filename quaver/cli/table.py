"""Answers as a table with probability bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from rich import box
from rich.bar import Bar
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 24
SHOWN_OPTIONS = 12


def answers_table(reply: Mapping[str, Any]) -> Table:
    """A ``/v1/systemone`` reply as a table: one row per option, the answer of each question in bold."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_caption(reply), caption_justify="left")
    table.add_column("question", min_width=5)
    table.add_column("answer", min_width=5)
    table.add_column("probability", max_width=BAR_WIDTH)
    table.add_column("", justify="right", no_wrap=True, min_width=len("100.0%"))
    for name, answer in reply["answers"].items():
        rows = list(_rows(answer))
        best = max(p for _, p in rows)
        shown = sorted(rows, key=lambda row: -row[1])[:SHOWN_OPTIONS] if len(rows) > SHOWN_OPTIONS else rows
        cells: list[tuple[RenderableType, ...]] = [_cells(option, p, p == best) for option, p in shown]
        if len(rows) > len(shown):
            cells.append((Text(f"... {len(rows) - len(shown)} more options", "dim"), "", ""))
        # What is said of the question runs down beside its options.
        for said, beside in zip_longest(_headline(name, answer), cells, fillvalue=None):
            table.add_row(said or "", *(beside or ("", "", "")))
        table.add_section()
    return table


def _rows(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    match answer["type"]:
        case "noul":
            yield from (("yes", answer["noul"]), ("no", 1 - answer["noul"]))
        case "choice":
            yield from answer["probabilities"].items()
        case _:
            for level, p in answer["probabilities"].items():
                yield f"{level}  {answer['legend'][level]}", p


def _cells(option: str, p: float, best: bool) -> tuple[Text, Bar, Text]:
    style = "bold" if best else "dim"
    return Text(option, style), Bar(1.0, 0.0, p, color="green" if best else "blue"), Text(f"{p:.1%}", style)


def _headline(name: str, answer: Mapping[str, Any]) -> list[Text]:
    lines = [Text(name)]
    if answer["type"] == "score":
        lines.append(Text(f"score {answer['score']:.2f} of {len(answer['legend']) - 1}", "bold"))
    if "confidence" in answer:
        lines.append(Text(f"confidence {answer['confidence']:.2f}", "dim"))
    if answer.get("x_abstain"):
        lines.append(Text("to be left aside", "yellow"))
    return lines


def _caption(reply: Mapping[str, Any]) -> str:
    parts = [reply["model"], f"{reply['usage']['input_tokens']} tokens"]
    if cut := reply.get("x_truncated"):
        parts.append(f"the last {cut['state_tokens']} tokens of the state did not fit and were not read")
    return ", ".join(parts)
