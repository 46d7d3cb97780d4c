"""Jobs of tokens to head outputs on one thread that owns the model.

Works on encoded prompts and logits. Knows no questions, no JSON, no HTTP.
"""

from quaver.engine.engine import Engine
from quaver.engine.job import Reader, Reading
from quaver.engine.scheduler import Policy

__all__ = ["Engine", "Policy", "Reader", "Reading"]
