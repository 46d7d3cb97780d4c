"""Sizes in bytes as people write them."""

from __future__ import annotations

import re

import typer

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def size(text: str) -> int:
    """Bytes: ``4GiB``, ``1.5 GiB``, ``512MiB``, a plain number, or ``off`` for 0. A typer error for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\w*)", text.strip())
    units = {unit.lower(): factor for unit, factor in UNITS.items()}
    if text.strip().lower() == "off":
        return 0
    if found is None or found[2].lower() not in units:
        known = ", ".join(unit for unit in UNITS if unit)
        raise typer.BadParameter(f"{text!r} is not a size; write a number with {known} or nothing behind it, or off")
    return int(float(found[1]) * units[found[2].lower()])
