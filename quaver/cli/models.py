"""``quaver models``: what is here, what it reads, its limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from quaver.cli.talk import console, print_json
from quaver.errors import BadRelease
from quaver.questions import MAX_LEVELS, MAX_OPTIONS


@dataclass(frozen=True, slots=True)
class Listed:
    """One model as it is printed. ``max_length`` is in tokens, None without a limit; ``size`` in bytes."""

    load: str
    name: str
    reads: list[str]
    reading: list[str]
    max_length: int | None
    max_options: int
    max_levels: int
    size: int
    path: str


def models(
    folders: Annotated[list[Path] | None, typer.Argument(help="More release folders to list.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the models that can be loaded here without a download, what they read, and their limits."""
    listed = list(_here(folders or []))
    if as_json:
        print_json([asdict(model) for model in listed])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("load as", "name", "reads", "reading", "tokens", "options", "levels", "size"):
        table.add_column(column, overflow="fold")
    for model in listed:
        length = "no limit" if model.max_length is None else f"{model.max_length:,}"
        table.add_row(
            model.load,
            model.name,
            ", ".join(model.reads),
            ", ".join(model.reading),
            length,
            f"1-{model.max_options}",
            f"1-{model.max_levels}",
            decimal(model.size),
        )
    Console().print(table)


def _here(folders: list[Path]) -> Iterator[Listed]:
    """The embedded model, the releases in the hub's cache, and the folders that were named."""
    from quaver.decider import EMBEDDED, embedded_path

    yield _listed(EMBEDDED, embedded_path())
    yield from (_listed(name, path) for name, path in _cached())
    for folder in folders:
        try:
            yield _listed(str(folder), folder)
        except BadRelease as error:
            console.print(f"not listed: {error}", markup=False, highlight=False)


def _cached() -> Iterator[tuple[str, Path]]:
    """Hub ids with the folders of their complete releases."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    from quaver.models.release import inspect

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in sorted(repositories, key=lambda found: found.repo_id):
        for revision in sorted(repository.revisions, key=lambda found: found.commit_hash):
            try:
                inspect(revision.snapshot_path)
            except BadRelease:
                continue  # most of a cache are models of other kinds
            yield f"{repository.repo_id}@{revision.commit_hash}", revision.snapshot_path


def _listed(load: str, path: Path) -> Listed:
    from quaver.decider import limits_of
    from quaver.models.release import inspect

    info = inspect(path)
    limits, reading = limits_of(info)
    media = [kind for kind in ("images", "audio", "videos") if getattr(limits, kind)]
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return Listed(
        load,
        info.name,
        ["text", *media],
        list(reading),
        limits.max_length,
        MAX_OPTIONS,
        MAX_LEVELS,
        size,
        str(path),
    )
