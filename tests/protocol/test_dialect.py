"""The body decides its dialect; names of models; bodies of errors."""

from typing import Any

import pytest

from quaver.errors import BadRequest, UnknownModel
from quaver.protocol import (
    ALIASES,
    check_model,
    component_schemas,
    dialect_of,
    invalid_body,
    models_list,
    parse,
    parse_wire,
    refused,
)


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"questions": [], "state": "x"}, "decisions"),
        ({"questions": {}, "input": "x"}, "systemone"),
        ({"input": "x"}, "decisions"),
        ({"state": "x"}, "systemone"),
        ({"state": "x", "input": "y"}, "systemone"),
        ({}, "systemone"),
        ([1], "systemone"),
    ],
)
def test_dialect(body: Any, dialect: str) -> None:
    assert dialect_of(body) == dialect


def test_a_body_that_says_nothing_takes_the_other_word() -> None:
    assert dialect_of({}, "decisions") == "decisions"


def test_parse_reads_both_dialects() -> None:
    assert parse({"state": "x", "questions": {"q": {"type": "noul"}}}).dialect == "systemone"
    assert parse({"input": "x", "questions": [{"type": "predicate", "instructions": "?"}]}).dialect == "decisions"


ASKED = (
    {"state": "x", "questions": {"q": {"type": "noul"}}},
    {"input": "x", "questions": [{"type": "predicate", "instructions": "?"}]},
)


@pytest.mark.parametrize("body", ASKED)
def test_tenant_priority_and_time_limit_in_both_dialects(body: dict[str, Any]) -> None:
    request = parse_wire({**body, "cache_salt": "tenant", "x_priority": -100, "x_timeout_ms": 250}).request
    assert (request.cache_salt, request.priority, request.timeout) == ("tenant", -100, 0.25)
    for plain in ({}, {"cache_salt": None, "x_priority": None, "x_timeout_ms": None}):
        request = parse_wire({**body, **plain}).request
        assert (request.cache_salt, request.priority, request.timeout) == ("", 0, None)


def test_a_body_is_an_object() -> None:
    with pytest.raises(BadRequest, match=r"must be a JSON object, got \[1\]"):
        parse_wire([1])
    with pytest.raises(BadRequest, match=r"must be a JSON object, got \[1\]"):
        parse([1])  # type: ignore[arg-type]


def test_a_decisions_body_has_no_form_parts() -> None:
    with pytest.raises(BadRequest, match="no place for form parts"):
        parse_wire({"input": "x", "questions": []}, {"part": b"x"})


@pytest.mark.parametrize("name", [None, "mine-1", "jev-latest", "jev-preview", "gpt-6-luna", "typesafe/jev-latest"])
def test_known_models(name: str | None) -> None:
    check_model(name, "mine-1")


@pytest.mark.parametrize("name", ["~typesafe/jev-latest", "typesafe-ai/mine-1", "@cf/cloudflare/mine"])
def test_prefixes_of_gateways(name: str) -> None:
    check_model(name, "cloudflare/mine" if name.startswith("@") else "mine-1")


@pytest.mark.parametrize("name", ["", "jev", "gpt-6", "mine-2", "other/jev-latest"])
def test_unknown_models_are_told_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownModel, match="Known models: mine-1, jev-latest"):
        check_model(name, "mine-1")


def test_models_list_is_a_union() -> None:
    listed = models_list("mine-1", {"image_budget": 280})
    names = ["mine-1", *ALIASES]
    assert [model["name"] for model in listed["models"]] == names
    assert [model["id"] for model in listed["data"]] == names
    assert listed["object"] == "list"


def test_error_bodies() -> None:
    where = ("questions", "q", "criteria")
    assert invalid_body("systemone", "bad_question", "m", where) == {
        "detail": [{"type": "bad_question", "loc": ["body", *where], "msg": "m"}],
        "error": {
            "message": "m",
            "type": "invalid_request_error",
            "param": "questions.q.criteria",
            "code": "bad_question",
        },
    }
    assert set(invalid_body("decisions", "c", "m", ())) == {"error"}
    assert refused("systemone", "authentication_error", "c", "m") == {
        "detail": {"error_type": "authentication_error", "message": "m"},
        "error": {"message": "m", "type": "authentication_error", "param": None, "code": "c"},
    }
    assert refused("decisions", "api_usage_error", "c", "m")["error"]["type"] == "invalid_request_error"


def test_schemas_name_both_dialects() -> None:
    schemas = component_schemas()
    assert {"SystemOneBody", "SystemOneReply", "DecisionsBody", "DecisionsReply"} <= set(schemas)
    kinds = schemas["SystemOneBody"]["properties"]["questions"]["additionalProperties"]["discriminator"]["mapping"]
    assert set(kinds) == {"noul", "choice", "score"}


@pytest.mark.parametrize("body", [{"state": float("nan")}, {"input": {1: 2}}, {"state": "\ud800", "images": [b"x"]}])
def test_bodies_made_in_this_process_are_checked(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"finite|keys must be text|surrogate"):
        parse(body)
