"""The states of one batch, a bounded number of them under way at a time, each answered or failed alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

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
    places = asyncio.Semaphore(service.config.batch_window)

    async def answer(index: int) -> Answers | Exception:
        try:
            async with time_limit(since, call.timeout), places:
                return await _answer(service, lambda: make(index))
        except QuaverError as error:
            return error
        except Exception as error:
            log.exception("state %d of a batch failed", index)
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answer(index)) for index in range(len(call.states))]
    return [task.result() for task in tasks]


async def _answer(service: Service, make: Callable[[], Request]) -> Answers:
    """Submit until the queue has room; a batch is told to wait only by its own time limit."""
    while True:
        try:
            return await _submitted(service, make)
        except Overloaded as full:
            await asyncio.sleep(full.retry_after)


async def _submitted(service: Service, make: Callable[[], Request]) -> Answers:
    request = await asyncio.wrap_future(service.pool.submit(make))
    submitting = service.pool_for(request).submit(service.decider.submit, request)
    try:
        job = await asyncio.wrap_future(submitting)
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        # A thread may be preparing this state right now; its job must not outlive the batch.
        submitting.add_done_callback(_drop)
        raise


def _drop(submitting: Future[Future[Answers]]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
