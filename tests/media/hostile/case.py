"""One file and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """``outcome`` is the size of what is decoded, or words of the refusal.

    The size is (height, width) of an image, (seconds,) of sound, (frames, height, width) of a film or of
    a video of which every frame is asked.
    """

    name: str
    task: str
    data: bytes
    outcome: tuple[float, ...] | str


def cuts(
    name: str, task: str, data: bytes, outcome: str, at: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
) -> list[Case]:
    """The file cut off at parts of its length."""
    return [Case(f"{name}-cut-{part}", task, data[: int(len(data) * part)], outcome) for part in at]
