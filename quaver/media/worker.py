"""A process that decodes media for another one, so that a decoder that fails takes nothing else along.

Started by ``quaver.media.pool`` as ``python -m quaver.media.worker SOCKET MEMORY``.
"""

from __future__ import annotations

import math
import resource
import signal
import sys
from importlib import import_module
from socket import socket
from typing import Any

from quaver.errors import BadMedia
from quaver.media.exchange import receive, receive_bytes, send, send_item
from quaver.media.limits import MediaLimits
from quaver.media.tasks import TASKS, decode_here

OPEN_FILES = 64


def main() -> None:
    channel = socket(fileno=int(sys.argv[1]))
    # Before the limits hold: importing may write compiled modules, and the first file should not wait for it.
    for module, _ in TASKS.values():
        import_module(module)
    confine(int(sys.argv[2]))
    send(channel, {"ready": True})
    while True:
        try:
            call = receive(channel)
        except EOFError:
            return
        data = receive_bytes(channel, call["size"])
        # The parent kills what is late; this is for a parent that is gone itself.
        signal.alarm(math.ceil(call["seconds"]) + 1)
        answer(channel, call, data)
        signal.alarm(0)


def confine(memory: int) -> None:
    """No more address space than ``memory`` bytes, no files written, no core dumps, few files open."""
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),  # sockets and pipes are not meant by it
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        resource.setrlimit(kind, (most, most))


def answer(channel: socket, call: dict[str, Any], data: bytearray) -> None:
    """One item decoded and sent back, or the reason why it is not."""
    try:
        item = decode_here(call["task"], bytes(data), MediaLimits(**call["limits"]), **call["arguments"])
    except BadMedia as error:
        send(channel, {"refused": str(error)})
    except Exception as error:  # nobody foresaw it: this file is refused, the next one is read
        send(
            channel, {"refused": f"the file broke its decoder down ({type(error).__name__}: {error}); encode it again"}
        )
    else:
        send_item(channel, item)


if __name__ == "__main__":
    main()
