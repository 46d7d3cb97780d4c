"""Question in, answer out: assembles models, prompts, heads and the engine."""

from quaver.decider.decider import Decider, Settings
from quaver.decider.family import EncodedView, Limits
from quaver.decider.load import EMBEDDED, embedded_path, find_model, limits_of, load

__all__ = [
    "EMBEDDED",
    "Decider",
    "EncodedView",
    "Limits",
    "Settings",
    "embedded_path",
    "find_model",
    "limits_of",
    "load",
]
