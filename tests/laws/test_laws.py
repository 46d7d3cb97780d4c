"""Standing laws, for every kind of model that can be loaded here. Tolerance: 2e-5 in probability, float32."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from vectors import FLASH

import quaver
from quaver.decider import Decider
from quaver.errors import BadRequest

TOLERANCE = 2e-5
Load = Callable[..., Decider[Any]]


def embedded(**settings: Any) -> Decider[Any]:
    return quaver.load("embedded", dtype="float32", **settings)


def clef(**settings: Any) -> Decider[Any]:
    return quaver.load(str(FLASH), dtype="float32", reading="independent", **settings)


LOADERS: dict[str, Load] = {"embedded": embedded, "clef": clef}
QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"parcel": "a thing sent", "mail": None}},
    "heat": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
}
TEXT = "the parcel came late and box was torn nobody answers my mails money back please thank you"
WORDS = TEXT.split()


def state(seed: int, words: int = 60) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def body(seed: int, **changes: Any) -> dict[str, Any]:
    return {"state": state(seed), "questions": QUESTIONS, **changes}


def numbers(reply: dict[str, Any]) -> dict[str, list[float]]:
    """The probabilities of every answer."""
    return {
        name: list(answer.get("probabilities", {"": answer.get("noul")}).values())
        for name, answer in reply["answers"].items()
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, expected in numbers(other).items():
        assert numbers(one)[name] == pytest.approx(expected, abs=TOLERANCE)


@pytest.fixture(scope="module", params=LOADERS)
def load(request: pytest.FixtureRequest) -> Load:
    return LOADERS[request.param]


@pytest.fixture(scope="module")
def decider(load: Load) -> Iterator[Decider[Any]]:
    with load() as made:
        yield made


@pytest.mark.parametrize("words", [0, 1, 254, 255, 2000])
def test_cached_equals_uncached(words: int) -> None:
    asked = {"state": state(1, words), "questions": QUESTIONS}
    with embedded() as caching, embedded(state_cache_bytes=0) as bare:
        cold, warm, uncached = caching.systemone(asked), caching.systemone(asked), bare.systemone(asked)
        assert bare.stats()["tokens_reused"] == 0 == bare.stats()["state_cache_bytes"]
    assert warm["usage"]["input_tokens_details"]["cached_tokens"] == warm["usage"]["input_tokens"]
    assert_same(warm, cold)
    assert_same(cold, uncached)


def test_batched_equals_alone(decider: Decider[Any]) -> None:
    bodies = [body(seed) for seed in range(16)]
    alone = [decider.systemone(asked) for asked in bodies]
    with ThreadPoolExecutor(8) as pool:
        for one, other in zip(pool.map(decider.systemone, bodies), alone, strict=True):
            assert_same(one, other)


def test_questions_read_independently_do_not_see_each_other(decider: Decider[Any]) -> None:
    rng = random.Random(7)
    extra = {f"q{i}": {"type": "noul", "instructions": state(100 + i, 8)} for i in range(30)}
    together = decider.systemone(body(1, questions={**extra, **QUESTIONS}))
    for name, question in QUESTIONS.items():
        other_id = f"renamed {rng.random()} \U0001f600"
        alone = decider.systemone(body(1, questions={other_id: question}))
        assert numbers(alone)[other_id] == pytest.approx(numbers(together)[name], abs=TOLERANCE)


def test_option_order_of_a_choice_changes_only_the_order_of_the_answer(decider: Decider[Any]) -> None:
    options = dict.fromkeys(WORDS)
    asked = {"type": "choice", "instructions": "Which word?", "criteria": options}
    turned = {**asked, "criteria": dict(reversed(options.items()))}
    one = decider.systemone(body(1, questions={"q": asked}))["answers"]["q"]["probabilities"]
    other = decider.systemone(body(1, questions={"q": turned}))["answers"]["q"]["probabilities"]
    assert list(other) == list(reversed(one))
    assert other == pytest.approx(one, abs=TOLERANCE)


def test_restarted_equals_fresh(load: Load, decider: Decider[Any]) -> None:
    used = decider.systemone(body(3))
    with load() as fresh:
        assert_same(fresh.systemone(body(3)), used)


@pytest.mark.parametrize(
    "change",
    [
        {"questions": {**QUESTIONS, "bad": {"type": "choice", "criteria": {}}}},
        {"images": ["data:image/png;base64,AAAA"]},
        {"state": "half of a pair: \ud83d"},
        {"x_abstain": {"target": 0.1}},
    ],
    ids=["question", "image", "text", "abstention"],
)
def test_a_refused_request_leaves_no_trace(load: Load, change: dict[str, Any]) -> None:
    with load() as decider:
        before = decider.stats()
        with pytest.raises(BadRequest):
            decider.systemone(body(4, **change))
        assert decider.stats() == before
        answered = decider.systemone(body(4))
        assert answered["usage"]["input_tokens_details"]["cached_tokens"] == 0
