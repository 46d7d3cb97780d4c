"""The exceptions of Quaver, one tree.

::

    QuaverError
    ├── BadRequest            what the caller sent cannot be answered as it is
    │   ├── BadQuestion       a question breaks a rule; ``where`` leads to it
    │   ├── BadMedia          an image, clip or video cannot be read or used
    │   ├── TooLong           the request does not fit the model's limit
    │   └── UnknownModel      the named model is not the one served here
    ├── BadRelease            a folder or hub id is not a release that can be served
    ├── Overloaded            the queue is full; carries ``retry_after`` seconds
    ├── Expired               the request's own time limit passed before its answer was there
    ├── Unavailable           the engine is not ready, stopping, or dead
    ├── ServerError           a Quaver server answered a client with an error status
    └── EngineFault           a forward failed or gave non-finite numbers; ours to mend

Rooms raise meaning; only the server knows status codes.
"""

from __future__ import annotations


class QuaverError(Exception):
    """Base of everything that Quaver raises on purpose."""


class BadRequest(QuaverError):
    """The request cannot be answered.

    ``where`` is the path to the offending value inside the request body, such as
    ``("questions", "urgency", "criteria")``; empty when the whole request is meant.
    """

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class BadQuestion(BadRequest):
    """A question breaks a rule of its type."""


class BadMedia(BadRequest):
    """An image, audio clip or video cannot be decoded, or the model cannot take it."""


class TooLong(BadRequest):
    """The request needs more tokens than the model may read."""


class UnknownModel(BadRequest):
    """The request names a model that is not served."""


class BadRelease(QuaverError):
    """A folder or hub id cannot be loaded as a model; the message says why."""


class Overloaded(QuaverError):
    """The queue is full. ``retry_after`` is in seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(QuaverError):
    """The time that the caller gave a request passed before its answer was there."""


class Unavailable(QuaverError):
    """The engine is not ready, is stopping, or has died."""


class ServerError(QuaverError):
    """A server answered with an error status; ``status`` is that HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class EngineFault(QuaverError):
    """A forward failed, or its numbers are not finite, through no fault of the request."""
