"""The embedded model behind ``quaver.load``: long states, many options, limits, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import quaver
from quaver.decider import Decider
from quaver.errors import BadMedia, BadRequest, TooLong

QUESTIONS = {"what": quaver.Choice("What is it about?", {"sport": "a football match", "food": "cooking a meal"})}
FILLER = "The train to the coast leaves at nine and the sea is calm today. " * 200


@pytest.fixture(scope="module")
def decider() -> Iterator[Decider[Any]]:
    with quaver.load() as made:
        yield made


def test_the_end_of_a_long_state_is_read(decider: Decider[Any]) -> None:
    plain = decider.decide(FILLER, QUESTIONS)
    ended = decider.decide(FILLER + "The goalkeeper saved a penalty in the last minute of the match. " * 40, QUESTIONS)
    assert plain.truncated_tokens == ended.truncated_tokens == 0
    assert ended.input_tokens > plain.input_tokens > 2000
    assert ended["what"].probabilities["sport"] > plain["what"].probabilities["sport"]


def test_a_limit_refuses_and_never_cuts() -> None:
    with quaver.load(max_length=500) as limited:
        assert limited.limits.max_length == 500
        assert limited.decide("A short state.", QUESTIONS)["what"].choice
        with pytest.raises(TooLong, match=r"the request has \d+ tokens and the limit here is 500"):
            limited.decide(FILLER, QUESTIONS)


def test_255_options_get_a_probability_each(decider: Decider[Any]) -> None:
    options = {f"option {i}": None for i in range(254)} | {"a football match": None}
    answer = decider.decide("The striker scored twice before half-time.", {"q": quaver.Choice("What?", options)})["q"]
    assert list(answer.probabilities) == list(options)
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-12)
    assert answer.choice == "a football match"


def test_json_states_and_questions_are_read(decider: Decider[Any]) -> None:
    state = {"subject": "Match report", "body": ["The striker scored twice."]}
    asked = {"q": quaver.Choice({"ask": "What is it about?"}, {"sport": {"covers": ["football"]}, "food": None})}
    assert decider.decide(state, asked)["q"].choice == "sport"


def test_encode_shows_every_text_that_is_read(decider: Decider[Any]) -> None:
    body = {"state": "The striker scored.", "questions": {"q": {"type": "score", "criteria": ["bad", "good", "best"]}}}
    view = decider.encode(body)
    assert len(view.ids) == decider.systemone(body)["usage"]["input_tokens"]
    assert view.option_ids == [["0", "1", "2"]]
    spans = [*view.question_spans, *view.option_spans[0]]
    assert all(0 < start < end <= len(view.ids) for start, end in spans)
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]


@pytest.mark.parametrize("kind", ["images", "audio", "videos"])
def test_it_never_answers_about_media_that_it_cannot_see(decider: Decider[Any], kind: str) -> None:
    with pytest.raises(BadMedia, match=r"it reads text$"):
        decider.decide("Look!", QUESTIONS, **{kind: [b"anything"]})


@pytest.mark.parametrize("setting", [{"reading": "joint"}, {"special_tokens": "reference"}])
def test_settings_that_it_does_not_have_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="quaver-mini"):
        quaver.load(**setting)
