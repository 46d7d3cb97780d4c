"""Processes that decode media, each with a time limit and a memory limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from dataclasses import asdict
from socket import socketpair
from threading import BoundedSemaphore, Timer
from time import monotonic
from typing import Any

from quaver.errors import BadMedia, Unavailable
from quaver.media.exchange import receive, receive_item, send
from quaver.media.limits import MIB, MediaLimits

START_SECONDS = 60.0
#: What a decoder gets of the environment: keys and tokens stay out of the reach of hostile files.
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")


class DecoderPool:
    """Decodes one item per call in one of ``processes``, None for as many as suit the machine.

    They start when they are first needed. Calling it is ``Decode``: a file that takes longer than ``seconds``,
    crashes its decoder or needs more than ``memory`` bytes is BadMedia, and its process is replaced. A call
    waits while all processes are busy. Raises Unavailable when no process can be started. Safe to share
    between threads; close it when done.
    """

    def __init__(self, processes: int | None = None, seconds: float = 60.0, memory: int = 4096 * MIB) -> None:
        self._seconds = seconds
        self._memory = memory
        self._free = BoundedSemaphore(processes or _usual_processes())
        self._idle: deque[_Worker] = deque()
        self._closed = False

    def __call__(self, task: str, data: bytes, limits: MediaLimits, **arguments: Any) -> Any:
        call = {"task": task, "limits": asdict(limits), "arguments": arguments, "size": len(data)}
        with self._free:
            worker = self._take()
            try:
                return worker.call(call, data, self._seconds)
            finally:
                self._put_back(worker)

    @property
    def idle(self) -> list[int]:
        """The ids of the processes that wait for work."""
        return [worker.pid for worker in self._idle]

    def close(self) -> None:
        """Ends the processes; those at work when they have answered."""
        self._closed = True
        while worker := self._pop():
            worker.stop()

    def __enter__(self) -> DecoderPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> _Worker:
        if self._closed:
            raise Unavailable("the media decoders are closed")
        while worker := self._pop():
            if worker.alive:
                return worker
            worker.stop()
        return _Worker(self._memory)

    def _pop(self) -> _Worker | None:
        try:
            return self._idle.pop()  # the one used last, whose memory is still warm
        except IndexError:
            return None

    def _put_back(self, worker: _Worker) -> None:
        if worker.alive:
            self._idle.append(worker)
        else:
            worker.stop()
        if self._closed:
            self.close()


def _usual_processes() -> int:
    """Half the processors: the model needs the others."""
    return min(max((os.cpu_count() or 1) // 2, 2), 8)


class _Worker:
    """One process and the socket to it."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._channel, theirs = socketpair()
        with theirs:
            self._process = _start(theirs.fileno(), memory)
        try:
            with _Deadline(self._process, START_SECONDS):
                receive(self._channel)
        except (EOFError, OSError) as error:
            self.stop()
            raise Unavailable("the media decoder's process does not start") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, call: dict[str, Any], data: bytes, seconds: float) -> Any:
        """The decoded item; the process is stopped unless it has answered in time."""
        with _Deadline(self._process, seconds) as deadline:
            try:
                send(self._channel, {**call, "seconds": seconds}, data)
                header = receive(self._channel)
                item = None if "refused" in header else receive_item(self._channel, header, self._memory)
            except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
                self.stop()
                if deadline.passed:
                    raise BadMedia(f"decoding took more than {seconds:g} seconds; send a smaller file") from error
                raise BadMedia("the file broke its decoder down; encode it again") from error
            except BaseException:  # the caller is being stopped in the middle of an answer
                self.stop()
                raise
        if deadline.passed:
            self.stop()
        if "refused" in header:
            raise BadMedia(header["refused"])
        return item

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()


def _start(channel: int, memory: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            # -P: the folder that a server happens to stand in is nothing to import from.
            [sys.executable, "-P", "-m", "quaver.media.worker", str(channel), str(memory)],
            env=_environment(),
            pass_fds=[channel],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise Unavailable(f"the media decoder's process does not start: {error}") from error


class _Deadline:
    """Kills a process after ``seconds``: whoever reads from it then sees its end, whatever it was stuck in."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._until = monotonic() + seconds
        self._timer = Timer(seconds, process.kill)
        self._timer.daemon = True

    @property
    def passed(self) -> bool:
        return monotonic() >= self._until

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()


def _environment() -> dict[str, str]:
    """Libraries are found where this process finds them; more threads would only take address space."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
