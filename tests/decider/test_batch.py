"""Many requests at once: in order, within a window, through a full queue, and gone when the caller stops."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

import quaver
from quaver.decider.batch import decide_many, in_order
from quaver.errors import BadRequest, Overloaded, Unavailable
from quaver.questions import Answers, Noul, Request
from quaver.testing import FakeDecider

ASK = {"q": Noul("Is it urgent?")}


def requests(count: int) -> list[Request]:
    return [Request(f"state {n}", ASK) for n in range(count)]


def test_a_queue_smaller_than_the_window_is_waited_for() -> None:
    with quaver.load(max_queue=3) as decider:
        with pytest.raises(Overloaded):
            [decider.submit(request) for request in requests(20)]
        results = decide_many(decider.submit, requests(20))
        alone = [decider.decide(request.state, ASK)["q"].probability for request in requests(20)]
        by_state = decider.decide_many([request.state for request in requests(20)], ASK)
    assert [result["q"].probability for result in results] == pytest.approx(alone, abs=1e-6)
    assert [result["q"].probability for result in by_state] == pytest.approx(alone, abs=1e-6)


def test_a_request_that_cannot_be_asked_fails_alone() -> None:
    with quaver.load() as decider:
        asked = [*requests(3), Request("seen", ASK, images=(b"png",)), *requests(1)]
        results = decide_many(decider.submit, asked, window=2)
    assert [isinstance(result, Answers) for result in results] == [True, True, True, False, True]
    assert "cannot see images" in str(results[3])


def test_errors_that_arrive_late_stand_in_their_places() -> None:
    decider = FakeDecider(error=Unavailable("stopping"), early=False)
    assert [str(result) for result in decide_many(decider.submit, requests(3))] == ["stopping"] * 3
    decider.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        decide_many(decider.submit, requests(3))


def test_a_refusal_that_arrives_late_is_asked_again() -> None:
    answers = {0: [Overloaded("full", 0.001), Overloaded("full", 0.001), "done"], 1: [BadRequest("no")], 2: ["done"]}

    def submit(item: int) -> Future[str]:
        future: Future[str] = Future()
        outcome = answers[item].pop(0)
        future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)
        return future

    assert [str(result) for result in in_order(submit, answers)] == ["done", "no", "done"]


class Desk:
    """Takes items and answers the oldest one whenever ``most`` of them wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken: list[Future[int]] = []

    def submit(self, item: int) -> Future[int]:
        self.taken.append(Future())
        assert len(self.taken) == item + 1
        waiting = [n for n, future in enumerate(self.taken) if not future.done()]
        assert len(waiting) <= self._most, "more are under way than the window allows"
        if len(waiting) == self._most:
            self.taken[waiting[0]].set_result(waiting[0])
        return self.taken[-1]


def test_no_more_than_the_window_is_under_way() -> None:
    desk = Desk(4)
    results = in_order(desk.submit, range(100), window=4)
    assert [next(results) for _ in range(97)] == list(range(97))
    for future in desk.taken[97:]:
        future.set_result(-1)
    assert list(results) == [-1, -1, -1]


def test_what_is_under_way_is_cancelled_when_the_caller_stops() -> None:
    desk = Desk(4)
    results = in_order(desk.submit, range(100), window=4)
    assert next(results) == 0
    results.close()
    assert [future.cancelled() for future in desk.taken] == [False, True, True, True]
