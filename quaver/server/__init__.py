"""HTTP over a decider: both dialects on every path that their clients use. The only room that knows FastAPI."""

from quaver.server.app import check_address, create_app, run
from quaver.server.config import ServerConfig

__all__ = ["ServerConfig", "check_address", "create_app", "run"]
