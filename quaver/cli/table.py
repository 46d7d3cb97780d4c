"""Answers as a table with probability bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 24
SHOWN_OPTIONS = 12


def answers_table(reply: Mapping[str, Any]) -> Table:
    """A ``/v1/systemone`` reply as a table: one row per option, the answer of each question in bold."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_caption(reply), caption_justify="left")
    table.add_column("question", ratio=2)
    table.add_column("answer", ratio=2)
    table.add_column("probability", width=BAR_WIDTH, no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for name, answer in reply["answers"].items():
        rows = list(_rows(answer))
        best = max(p for _, p in rows)
        shown = sorted(rows, key=lambda row: -row[1])[:SHOWN_OPTIONS] if len(rows) > SHOWN_OPTIONS else rows
        for i, (option, p) in enumerate(shown):
            style = "bold" if p == best else "dim"
            last = i == len(shown) - 1
            table.add_row(
                _headline(name, answer) if i == 0 else "",
                Text(option, style),
                Text(bar(p), "green" if p == best else "blue"),
                Text(f"{p:.1%}", style),
                end_section=last and len(rows) == len(shown),
            )
        if len(rows) > len(shown):
            table.add_row("", Text(f"... {len(rows) - len(shown)} more options", "dim"), "", "", end_section=True)
    return table


def bar(probability: float) -> str:
    """A bar of up to ``BAR_WIDTH`` cells, in eighths of a cell."""
    eighths = round(probability * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _rows(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    match answer["type"]:
        case "noul":
            yield from (("yes", answer["noul"]), ("no", 1 - answer["noul"]))
        case "choice":
            yield from answer["probabilities"].items()
        case _:
            for level, p in answer["probabilities"].items():
                yield f"{level}  {answer['legend'][level]}", p


def _headline(name: str, answer: Mapping[str, Any]) -> Text:
    text = Text(name)
    if answer["type"] == "score":
        text.append(f"\nscore {answer['score']:.2f} of {len(answer['legend']) - 1}", "bold")
    if "confidence" in answer:
        text.append(f"\nconfidence {answer['confidence']:.2f}", "dim")
    return text


def _caption(reply: Mapping[str, Any]) -> str:
    parts = [reply["model"], f"{reply['usage']['input_tokens']} tokens"]
    if cut := reply.get("x_truncated"):
        parts.append(f"the last {cut['state_tokens']} tokens of the state did not fit and were not read")
    return ", ".join(parts)
