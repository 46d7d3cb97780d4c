"""Odd JSON is refused with the place named, and numbers come through as Python reads them."""

import json
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaver.errors import BadRequest
from quaver.protocol.strict_json import MAX_DEPTH, check, loads

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(values)
def test_reads_what_python_reads(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        (b"", "the body is not JSON", ()),
        (b"[1", "the body is not JSON", ()),
        (b"{'a': 1}", "the body is not JSON", ()),
        (b'{"a": "\xff"}', "not UTF-8: byte 7 is 0xff", ()),
        (b'{"state": NaN}', "state is nan; JSON numbers are finite", ("state",)),
        (b'{"state": [1, -Infinity]}', "state.1 is -inf", ("state", 1)),
        (b'{"state": 1e999}', "state is inf", ("state",)),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', 'a has the key "b" twice', ("a",)),
        (b'{"state": "x\\ud800"}', r"state has a lone surrogate \ud800", ("state",)),
        (b'{"questions": {"\\udc00": 1}}', r"lone surrogate \udc00", ("questions", "\udc00")),
        (b'{"questions": {"q": {"criteria": {"\\ud800": 1}}}}', r'question "q", criteria.\ud800 has a lone', None),
        (b"1" * 4301, "more than 4300 digits", ()),
        (b"[" * 3000 + b"]" * 3000, "nested deeper than 100 levels", ()),
        (b'{"state":' + b'{"a":' * 200 + b"1" + b"}" * 201, "state.a is nested deeper than 100", ("state", "a")),
    ],
)
def test_refuses(text: bytes, message: str, where: tuple[str | int, ...] | None) -> None:
    with pytest.raises(BadRequest) as caught:
        loads(text)
    assert message in str(caught.value)
    str(caught.value).encode()
    if where is not None:
        assert caught.value.where == where


def test_numbers_keep_their_text() -> None:
    text = "[1.0, 1e-07, 1e+16, 12345678901234567890123, -0.0, 5e-324]"
    assert json.dumps(loads(text.encode())) == text


def test_nesting_up_to_the_limit_is_read() -> None:
    assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


def test_ten_thousand_containers_are_checked_in_the_room_of_one() -> None:
    body = {"state": [[] for _ in range(10_000)]}
    check(body)
    tracemalloc.start()
    try:
        check(body)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_the_first_fault_in_reading_order_is_named() -> None:
    with pytest.raises(BadRequest, match=r"state\.a\.0 is nan"):
        check({"state": {"a": [math.nan]}, "questions": {"q": math.inf}})


@pytest.mark.parametrize("value", [{"a": b"x"}, {1: 2}, {"a": {2}}, {"a": 10**4400}, {"a": math.nan}])
def test_values_made_in_python_are_checked_too(value: object) -> None:
    with pytest.raises(BadRequest):
        check(value)
