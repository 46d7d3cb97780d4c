"""Talk to the person on stderr, so that stdout carries only results."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True)


def progress() -> Progress:
    """A bar that says how many of how many are done, and how long the rest will take."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def print_json(value: Any, indent: int | None = None) -> None:
    """One JSON document on stdout, in ASCII where the terminal's or pipe's encoding lacks one of its characters."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    typer.echo(text)
