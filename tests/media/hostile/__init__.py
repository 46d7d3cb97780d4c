"""Hostile and odd media, made here, each with what has to come of it."""

from hostile import films, images, sounds
from hostile.case import Case

CASES: list[Case] = [*images.cases(), *sounds.cases(), *films.cases()]

__all__ = ["CASES", "Case"]
