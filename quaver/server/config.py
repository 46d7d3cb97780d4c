"""How a server is set up. How requests are answered belongs to the decider."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.errors import BadRequest


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Without ``api_keys`` the server is open. ``salt_by_key`` keeps what was read for one key from all others.
    ``aliases`` are more names that the model answers to.

    ``max_body_bytes`` counts a body after decompression. ``max_in_flight`` bounds the requests held at once,
    read or being read; one more gets a 429. Of one batch at most ``batch_window`` states are under way.
    ``prepare_threads`` parse and tokenise, so that a long text never holds up the others. Requests with media
    wait for ``media_threads`` of their own, so that a slow host or a long video never holds up those without.
    """

    host: str = "127.0.0.1"
    # Where the package systemone-client looks unless told otherwise.
    port: int = 8093
    api_keys: tuple[str, ...] = ()
    salt_by_key: bool = False
    # TypeSafe's own limit of a request with images.
    max_body_bytes: int = 32 * 1024 * 1024
    max_in_flight: int = 512
    # Tokenizers let go of Python's lock, so these run beside the engine.
    prepare_threads: int = 4
    media_threads: int = 8
    # Fills a step of the engine, and leaves most of a decider's queue (256) to others.
    batch_window: int = 64
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """BadRequest for settings that contradict each other."""
        if self.salt_by_key and not self.api_keys:
            raise BadRequest("salt_by_key keeps API keys apart and there are none; give at least one, or leave it off")
