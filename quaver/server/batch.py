"""The states of one batch, a bounded number of them under way at a time, each answered or failed alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from quaver.errors import Overloaded, QuaverError
from quaver.protocol import BatchCall
from quaver.questions import Answers, Request
from quaver.server.service import Service
from quaver.server.waiting import time_limit

log = logging.getLogger("quaver.server")


async def answer_states(
    service: Service, call: BatchCall, make: Callable[[int], Request], since: float
) -> list[Answers | Exception]:
    """A result per state, in order. ``make`` gives the request about a state and runs in a thread.

    The batch's time limit counts from ``since`` on the loop's clock. Cancelling this drops what is unanswered.
    """
    places, door = asyncio.Semaphore(service.config.batch_window), _Door(service)

    async def answer(index: int) -> Answers | Exception:
        try:
            async with time_limit(since, call.timeout), places:
                job = await door.enter(lambda: make(index))
                return await asyncio.wrap_future(job)
        except QuaverError as error:
            return error
        except Exception as error:
            # Caught here, because an exception that leaves a task group cancels all other states.
            log.exception("state %d of a batch failed", index)
            return error
        finally:
            # However it ended, its place in the queue is free.
            door.left.set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answer(index)) for index in range(len(call.states))]
    return [task.result() for task in tasks]


class _Door:
    """Lets the states of one batch into the decider's queue. ``left`` is set whenever one of them has left it."""

    def __init__(self, service: Service) -> None:
        self.left = asyncio.Event()
        self._service = service
        self._turn = asyncio.Lock()

    async def enter(self, make: Callable[[], Request]) -> Future[Answers]:
        """The job of a state, once the queue has room for it."""
        # A locked turn means that the queue was full a moment ago.
        if not self._turn.locked():
            with suppress(Overloaded):
                return await self._submit(make)
        # The queue is full. To prepare a state is work, so one of them tries its luck and the others wait behind it.
        async with self._turn:
            while True:
                self.left.clear()
                try:
                    return await self._submit(make)
                except Overloaded as full:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.left.wait(), full.retry_after)

    async def _submit(self, make: Callable[[], Request]) -> Future[Answers]:
        submitting = self._service.pool.submit(lambda: self._service.decider.submit(make()))
        try:
            return await asyncio.wrap_future(submitting)
        except asyncio.CancelledError:
            # A thread may be preparing this state right now; its job must not outlive the batch.
            submitting.add_done_callback(_drop)
            raise


def _drop(submitting: Future[Future[Answers]]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
