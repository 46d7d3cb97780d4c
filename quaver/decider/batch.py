"""Many requests, a bounded number of them under way, their results in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from threading import Semaphore
from typing import TypeVar

from quaver.errors import Overloaded, QuaverError
from quaver.questions import Answers, Request

#: Enough to fill a step of the engine, and well below the queue of a decider.
WINDOW = 64

Item = TypeVar("Item")
Result = TypeVar("Result")


def decide_many(
    submit: Callable[[Request], Future[Answers]], requests: Iterable[Request], window: int = WINDOW
) -> list[Answers | QuaverError]:
    """Answers in the order of ``requests``, in the place of one that failed its error; see ``in_order``."""
    results = in_order(submit, requests, window)
    return list(results)


def in_order(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], window: int = WINDOW
) -> Iterator[Result | QuaverError]:
    """Results as soon as all before them are there, while at most ``window`` items wait for theirs.

    ``Overloaded`` is waited out; any other QuaverError takes the place of its result. What else goes wrong is
    raised. When the iteration ends early, in whatever way, what is under way is cancelled.
    """
    places = Semaphore(window)
    asked: deque[tuple[Item, Future[Result]]] = deque()

    def settled(wait_for_all: bool) -> Iterator[Result | QuaverError]:
        while asked and (wait_for_all or asked[0][1].done()):
            item, future = asked[0]
            result = _result(submit, item, future)
            asked.popleft()
            yield result

    try:
        for item in items:
            places.acquire()
            future = _submitted(submit, item, [future for _, future in asked])
            future.add_done_callback(lambda _: places.release())
            asked.append((item, future))
            yield from settled(wait_for_all=False)
        yield from settled(wait_for_all=True)
    finally:
        for _, future in asked:
            future.cancel()


def _submitted(
    submit: Callable[[Item], Future[Result]], item: Item, others: Sequence[Future[Result]] = ()
) -> Future[Result]:
    """The future of ``item``; one that has failed when it is refused."""
    while True:
        try:
            return submit(item)
        except Overloaded as full:
            _wait_for_room([future for future in others if not future.done()], full.retry_after)
        except QuaverError as error:
            refused: Future[Result] = Future()
            refused.set_exception(error)
            return refused


def _wait_for_room(ours: Sequence[Future[Result]], seconds: float) -> None:
    """Until one of ``ours`` leaves the queue, at most as long as the queue asks to."""
    if ours:
        wait(ours, seconds, FIRST_COMPLETED)
    else:
        time.sleep(seconds)


def _result(submit: Callable[[Item], Future[Result]], item: Item, future: Future[Result]) -> Result | QuaverError:
    while True:
        try:
            return future.result()
        except Overloaded as full:
            time.sleep(full.retry_after)
            future = _submitted(submit, item)
        except QuaverError as error:
            return error
