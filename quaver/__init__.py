"""Quaver serves decision models: a state and typed questions in, a probability for every allowed answer out."""

from quaver.errors import QuaverError
from quaver.questions import Choice, Noul, Score

__all__ = ["Choice", "Noul", "QuaverError", "Score"]
