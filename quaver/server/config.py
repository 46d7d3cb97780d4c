"""How a server is set up. How requests are answered belongs to the decider."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """``api_key`` None leaves the server open. ``max_body_bytes`` counts a body after decompression.

    ``max_in_flight`` bounds the requests held at once, read or being read; one more gets a 429.
    ``prepare_threads`` decode and tokenise, so that a long text never holds up the others.
    """

    host: str = "127.0.0.1"
    port: int = 8093
    api_key: str | None = None
    max_body_bytes: int = 32 * 1024 * 1024
    max_in_flight: int = 512
    prepare_threads: int = 4
