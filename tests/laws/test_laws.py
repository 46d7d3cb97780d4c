"""Standing laws, for every kind of model that can be loaded here. Tolerance: 2e-5 in probability, float32."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from chat_release import chat_release
from PIL import Image
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


def chat(**settings: Any) -> Decider[Any]:
    return quaver.load(str(chat_model()), dtype="float32", **settings)


@cache
def chat_model() -> Path:
    return chat_release(Path(_FILES.name) / "qwen3", "qwen3", "qwen3")


_FILES = TemporaryDirectory()
LOADERS: dict[str, Load] = {"embedded": embedded, "clef": clef, "chat": chat}
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


def cached(reply: dict[str, Any]) -> int:
    """Input tokens that were not read again."""
    count: int = reply["usage"]["input_tokens_details"]["cached_tokens"]
    return count


@pytest.mark.parametrize("words", [0, 1, 254, 255, 2000])
def test_cached_equals_uncached(load: Load, words: int) -> None:
    asked = {"state": state(1, words), "questions": QUESTIONS}
    with load() as caching, load(state_cache_bytes=0) as bare:
        cold, warm, uncached = caching.systemone(asked), caching.systemone(asked), bare.systemone(asked)
        assert bare.stats()["state_cache_bytes"] == 0
        assert cached(cold) == cached(uncached)
    assert cached(warm) > cached(cold)
    assert_same(warm, cold)
    assert_same(cold, uncached)


PICTURES = [FLASH / "media" / name for name in ("odd_37x91.png", "bilevel_48x80.png")]


@pytest.mark.parametrize("reading", ["joint", "independent"])
def test_states_with_images_are_cached_by_what_is_seen(reading: str) -> None:
    """The same picture again, under another text, by another way, and another picture of the same size."""
    picture, other = Image.open(PICTURES[0]).convert("RGB"), Image.open(PICTURES[0]).convert("RGB")
    other.putpixel((5, 5), (255, 0, 255))
    data = io.BytesIO()
    picture.save(data, "PNG")
    asks = [
        {"images": [picture]},
        {"images": [data.getvalue()], "questions": {"late": QUESTIONS["late"]}},
        {"images": [picture], "state": "a letter"},
        {"images": [other]},
        {"images": [picture, other]},
        {"images": [PICTURES[1]]},
        {},
    ]
    with quaver.load(str(FLASH), dtype="float32", reading=reading) as caching:
        replies = [caching.systemone(body(1, **asked)) for asked in asks]
    for asked, reply in zip(asks, replies, strict=True):
        with quaver.load(str(FLASH), dtype="float32", reading=reading, state_cache_bytes=0) as bare:
            assert_same(reply, bare.systemone(body(1, **asked)))
    if reading == "joint":
        assert cached(replies[0]) == 0 < cached(replies[2]) < cached(replies[1])
        assert cached(replies[3]) < cached(replies[2]), "another picture was taken for the same"


def test_one_tenant_cannot_tell_what_another_asked(load: Load) -> None:
    with load() as decider:
        alone = cached(decider.systemone(body(1, cache_salt="one")))
        assert cached(decider.systemone(body(1, cache_salt="two"))) == alone
        assert cached(decider.systemone(body(1, cache_salt="one"))) > alone


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
    with load() as fresh:
        # Questions of one request share its state, so even a fresh model may count reused tokens.
        assert answered["usage"] == fresh.systemone(body(4))["usage"]
