"""What the served OpenAPI document says about each route."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from quaver.protocol import component_schemas

_TEXT = {"type": "string"}
_ERRORS = {
    "400": "The request cannot be answered as it is.",
    "401": "The API key is wrong.",
    "403": "The API key is missing.",
    "404": "The model is not served here (Decisions).",
    "413": "The body is too large.",
    "415": "The content encoding is not known.",
    "422": "The body breaks a rule of the dialect (System One).",
    "429": "Too many requests wait; see retry-after.",
    "500": "A fault of the server.",
    "503": "The model is not ready; see retry-after.",
    "504": "The time that the request allowed is over.",
}


def described(route: str) -> dict[str, Any]:
    """What ``add_api_route`` is told about a route, by the route's short name."""
    if route in _DECIDES:
        body, form, reply = _DECIDES[route]
        return {
            "operation_id": route,
            "response_class": JSONResponse,
            "responses": _responses(_json(reply), "400", "401", "403", "404", "413", "415", *_LATER),
            "openapi_extra": {"requestBody": {"required": True, "content": _request_content(body, form)}},
        }
    good, errors = _READS[route]
    return {"operation_id": route, "response_class": Response, "responses": _responses(good, *errors)}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, with the bodies and replies of both dialects as components."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = made.setdefault("components", {})
    # FastAPI knows no bodies, because routes read them on their own: as bytes, in either dialect.
    components["schemas"] = component_schemas()
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    # The empty alternative says that a server without a key asks for none.
    made["security"] = [{}, {"bearer": []}, {"header": []}]
    return made


def _request_content(body: dict[str, Any], in_form: str) -> dict[str, Any]:
    form = {
        "type": "object",
        "required": ["request"],
        "properties": {"request": _ref(in_form)},
        "additionalProperties": {"type": "string", "format": "binary", "description": "A file that an asset names."},
    }
    return {
        **_json(body),
        "multipart/form-data": {"schema": form, "encoding": {"request": {"contentType": "application/json"}}},
    }


def _either(suffix: str) -> dict[str, Any]:
    return {"anyOf": [_ref(f"SystemOne{suffix}"), _ref(f"Decisions{suffix}")]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _object(*names: str) -> dict[str, Any]:
    return _json({"type": "object", "required": list(names)})


def _responses(good: dict[str, Any], *errors: str) -> dict[int | str, dict[str, Any]]:
    made: dict[int | str, dict[str, Any]] = {200: {"description": "OK", "content": good}}
    for status in errors:
        made[status] = {"description": _ERRORS[status], "content": _json(_ref("ErrorReply"))}
    return made


_LATER = ("422", "429", "500", "503", "504")
#: The bodies as JSON, the one that a form may hold, and the replies.
_DECIDES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    **dict.fromkeys(("systemone", "decisions"), (_either("Body"), "SystemOneBody", _either("Reply"))),
    "batch": (_ref("BatchBody"), "BatchBody", _ref("BatchReply")),
}
_READS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "models": (_object("models", "object", "data"), ("401", "403")),
    "health": (_object("ok"), ()),
    "ready": (_object("ready"), ("503",)),
    "metrics": ({"text/plain": {"schema": _TEXT}}, ()),
}
