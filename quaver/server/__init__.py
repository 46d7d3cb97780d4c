"""HTTP over a decider: both dialects on every path that their clients use. The only room that knows FastAPI."""

from quaver.server.app import create_app, run
from quaver.server.config import ServerConfig

__all__ = ["ServerConfig", "create_app", "run"]
