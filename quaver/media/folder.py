"""Files below the one folder that requests may name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from quaver.errors import BadMedia


def read_below(folder: Path, name: str, most: int) -> bytes:
    """At most ``most`` + 1 bytes of the regular file ``name``, a path or ``file:`` URL in ``folder``.

    Symbolic links count only when they end inside. Raises BadMedia for everything else, without telling
    what exists outside.
    """
    root = folder.resolve()
    try:
        # Resolved first, then opened without following anything, so that a link made meanwhile gains nothing.
        steps = (root / _path(name)).resolve(strict=True).relative_to(root).parts
        return _read(root, steps, most)
    except (OSError, ValueError, RuntimeError):
        raise BadMedia(f"{name[:100]} is not a file in the folder that media are read from") from None


def _path(name: str) -> str:
    if name[:5].lower() != "file:":
        return name
    url = urlsplit(name)
    if url.netloc not in ("", "localhost"):
        raise ValueError("another host's file")
    return unquote(url.path, errors="strict")


def _read(root: Path, steps: tuple[str, ...], most: int) -> bytes:
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, step in enumerate(steps, start=1):
            # Not blocking: opening a pipe would wait for a writer.
            kind = os.O_DIRECTORY if number < len(steps) else os.O_NONBLOCK
            there = os.open(step, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=here)
            os.close(here)
            here = there
        if not stat.S_ISREG(os.fstat(here).st_mode):
            raise ValueError("not a regular file")
        with open(here, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(here)
