"""The Decisions dialect from the caller's side: a System One body or reply to and from it.

``DecisionsTransport`` lets a System One client talk to a server that only knows ``/v1/decisions``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from quaver.errors import ServerError

PATH = "/v1/decisions"


class DecisionsTransport(httpx.BaseTransport):
    """Sends System One requests as Decisions requests and gives their replies back as System One replies.

    Requests without a body, and error replies, pass as they are. Raises ServerError for a reply of another form.
    """

    def __init__(self, inner: httpx.BaseTransport | None = None) -> None:
        self._inner = inner or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not request.content:
            return self._inner.handle_request(request)
        body = json.loads(request.content)
        path = request.url.path.removesuffix("/v1/systemone") + PATH
        # The body is another one, so its length and type are httpx's to write.
        headers = {k: v for k, v in request.headers.items() if k not in ("content-length", "content-type")}
        sent = httpx.Request(
            request.method,
            request.url.copy_with(path=path),
            headers=headers,
            json=decisions_body(body),
            extensions=request.extensions,
        )
        response = self._inner.handle_request(sent)
        response.read()
        if not response.is_success:
            return response
        try:
            return httpx.Response(200, json=systemone_reply(response.json(), body["questions"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ServerError(f"the reply is not one of the Decisions dialect: {error!r}", 502) from error

    def close(self) -> None:
        self._inner.close()


def decisions_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """A ``/v1/decisions`` body that asks what a ``/v1/systemone`` body asks.

    A noul has no slot for criteria there, so they follow the instructions, a line for each side. Own
    fields (``x_...``) are kept; the dialect has no audio and no videos.
    """
    kept = {name: value for name, value in body.items() if name == "model" or name.startswith("x_")}
    questions = [{"name": name, **_question(question)} for name, question in body["questions"].items()]
    return {**kept, "input": _input(body["state"], body.get("images") or ()), "questions": questions}


def systemone_reply(reply: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
    """A ``/v1/decisions`` reply to ``questions`` as a ``/v1/systemone`` reply; a refused question has no answer."""
    answers = {
        name: _answer(question, given)
        for (name, question), given in zip(questions.items(), reply["answers"], strict=False)
        if given["type"] != "refusal"
    }
    return {**reply, "answers": answers}


def _input(state: Any, images: Any) -> Any:
    if isinstance(state, str) and not images:
        return state
    if isinstance(state, Mapping):
        content: dict[str, Any] = {"type": "input_json", "data": state}
    else:
        content = {"type": "input_text", "text": _text(state)}
    pictures = [{"type": "input_image", "image_url": image} for image in images]
    return [{"role": "user", "content": [content, *pictures]}]


def _question(question: Mapping[str, Any]) -> dict[str, Any]:
    instructions, criteria = _text(question.get("instructions") or ""), question.get("criteria")
    if question["type"] == "choice":
        options = criteria.items() if isinstance(criteria, Mapping) else [(option, None) for option in criteria or ()]
        choices = [{"value": option} | _described(text) for option, text in options]
        return {"type": "choice", "instructions": instructions, "choices": choices}
    if question["type"] == "score":
        levels = [{"label": _text(level)} for level in criteria or ()]
        return {"type": "score", "instructions": instructions, "levels": levels}
    sides = [f"{side}: {_text(text)}" for side, text in (criteria or {}).items() if text is not None]
    return {"type": "predicate", "instructions": "\n".join([instructions, *sides])}


def _answer(question: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    if given["type"] == "predicate":
        return {"type": "noul", "noul": given["probability"]}
    probabilities = {str(item["value"]): item["probability"] for item in given["probabilities"]}
    found = {"type": given["type"], "probabilities": probabilities, "confidence": given["confidence"]}
    if given["type"] == "choice":
        return {**found, "choice": given["choice"]}
    legend = {str(i): level for i, level in enumerate(question["criteria"])}
    return {**found, "score": given["score"], "legend": legend}


def _described(text: Any) -> dict[str, str]:
    return {} if text is None else {"description": _text(text)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
