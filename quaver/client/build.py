"""Pure halves of a call: a request to a body, a response to answers or to the exception that it stands for."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from quaver.errors import (
    BadMedia,
    BadQuestion,
    BadRequest,
    Expired,
    Overloaded,
    QuaverError,
    ServerError,
    TooLong,
    Unavailable,
    UnknownModel,
)
from quaver.questions import (
    Answer,
    Answers,
    ChoiceAnswer,
    Json,
    LabelFacts,
    MediaSource,
    Noul,
    NoulAnswer,
    Question,
    Request,
    Score,
    ScoreAnswer,
)

PATH = "/v1/systemone"
BATCH_PATH = "/v1/systemone/batch"
MODELS_PATH = "/v1/models"

#: A rate limit, and TypeSafe's own status for too much load.
BUSY = (429, 529)

#: Seconds; a server that asks for more is not waited for, and its caller told. As TypeSafe's JavaScript SDK has it.
LONGEST_WAIT = 60.0

#: Codes of a Quaver server's errors; other servers' errors become plain BadRequest.
CODES: Mapping[str, type[BadRequest]] = {
    "bad_question": BadQuestion,
    "bad_media": BadMedia,
    "context_length_exceeded": TooLong,
    "model_not_found": UnknownModel,
}


def headers(api_key: str | None) -> dict[str, str]:
    key = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return {"content-type": "application/json", **key}


def build_body(request: Request, model: str | None) -> dict[str, Any]:
    """The System One body of ``request``; only what was set is sent, so that strict servers take it too."""
    body: dict[str, Any] = {
        "state": request.state,
        "questions": {name: _question(question) for name, question in request.questions.items()},
    }
    optional = {
        "model": model,
        "images": [_media(item, "image/png") for item in request.images] or None,
        "audio": [_media(item, "audio/wav") for item in request.audio] or None,
        "videos": [_media(item, "video/mp4") for item in request.videos] or None,
        "x_reading": request.reading,
        "x_on_overflow": request.on_overflow,
        "x_confidence": request.confidence,
        "x_abstain": {"target": request.abstain.target, "of": request.abstain.of} if request.abstain else None,
        "x_min_label_mass": request.labels.min_mass,
        "x_prior_correction": request.labels.prior_correction,
        "x_option_orders": request.labels.orders,
        "cache_salt": request.cache_salt or None,
        "mm_processor_kwargs": None if request.image_budget is None else {"max_soft_tokens": request.image_budget},
        "x_priority": request.priority or None,
        "x_timeout_ms": None if request.timeout is None else request.timeout * 1000,
    }
    # What is false or zero is sent: the server may be set otherwise, and refuses what cannot be.
    return {**body, **{name: value for name, value in optional.items() if value is not None}}


def build_batch(request: Request, states: Sequence[Json], model: str | None) -> dict[str, Any]:
    """The batch body that asks what ``request`` asks of each of ``states``."""
    body = build_body(request, model)
    del body["state"]
    return {"states": list(states), **body}


def to_json(body: Mapping[str, Any]) -> bytes:
    """The text of ``body``; BadRequest for what JSON cannot hold, as the decider has it."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"the request cannot be written as JSON: {error}") from error


def parse_answers(response: httpx.Response, questions: Mapping[str, Question]) -> Answers:
    """The answers in ``response``, in the order of ``questions``. A response without them is a ServerError."""
    return _answers(parse_json(response), questions)


def parse_batch(response: httpx.Response, questions: Mapping[str, Question], count: int) -> list[Answers | QuaverError]:
    """A result for each of ``count`` states, in order. A response without them is a ServerError."""
    body = parse_json(response)
    results = body.get("results")
    if not isinstance(results, list) or len(results) != count or not all(isinstance(item, dict) for item in results):
        raise ServerError(f"the reply does not have a result for each of {count} states", response.status_code)
    return [_result(item, questions) for item in results]


def _result(item: Mapping[str, Any], questions: Mapping[str, Question]) -> Answers | QuaverError:
    if "error" in item:
        # A result of a batch stands where a response would have stood, with its status inside.
        return _error(item.get("status", 500), item, None, "the state was not answered")
    return _answers(item, questions)


def _answers(body: Mapping[str, Any], questions: Mapping[str, Question]) -> Answers:
    try:
        usage = body["usage"]
        return Answers(
            {name: _answer(question, body["answers"][name]) for name, question in questions.items()},
            model=body["model"],
            # Others do not say. The dialect asks that questions do not change each other's answers.
            reading=body.get("x_reading", "independent"),
            input_tokens=usage["input_tokens"],
            # Gateways write null where they do not know.
            cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens") or 0,
            truncated_tokens=body.get("x_truncated", {}).get("state_tokens", 0),
            calibration=body.get("x_calibration"),
            abstained=_abstained(body["answers"], questions),
            labels=_labels(body, questions),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ServerError(f"the reply is not a System One reply: {error!r} is missing or wrong", 200) from None


def _abstained(answers: Mapping[str, Any], questions: Mapping[str, Question]) -> dict[str, bool] | None:
    said = {name: answers[name]["x_abstain"] for name in questions if "x_abstain" in answers[name]}
    return said or None


def _labels(body: Mapping[str, Any], questions: Mapping[str, Question]) -> dict[str, LabelFacts] | None:
    if "x_label_mass" not in body:
        return None
    ties, spread = body.get("x_ties", {}), body.get("x_order_spread", {})
    return {
        name: LabelFacts(
            body["x_label_mass"][name], body["x_argmax_is_label"][name], tuple(ties.get(name, ())), spread.get(name)
        )
        for name in questions
    }


def parse_models(response: httpx.Response) -> list[str]:
    """Names in either dialect's list of models."""
    body = parse_json(response)
    try:
        return [item["name"] for item in body["models"]] if "models" in body else [x["id"] for x in body["data"]]
    except (KeyError, TypeError) as error:
        raise ServerError(f"the reply is not a list of models: {error!r} is missing or wrong", 200) from None


def parse_json(response: httpx.Response) -> dict[str, Any]:
    """The object in a good response; the exception that an error response stands for."""
    try:
        body = response.json()
    except ValueError:
        # Proxies in between answer in HTML.
        body = None
    if not response.is_success:
        plain = response.text[:500] or response.reason_phrase
        raise _error(response.status_code, body if isinstance(body, dict) else {}, _retry_after(response), plain)
    if not isinstance(body, dict):
        raise ServerError("the reply is not a JSON object", response.status_code)
    return body


def retry_delay(response: httpx.Response, attempt: int) -> float | None:
    """Seconds to wait before asking again; None when that would not help, or not soon."""
    if response.status_code not in (*BUSY, 503):
        return None
    delay = _retry_after(response) or 0.25 * 2**attempt
    return delay if delay <= LONGEST_WAIT else None


def _error(status: int, body: Mapping[str, Any], retry_after: float | None, otherwise: str) -> QuaverError:
    """The exception that an error body stands for; its message is ``otherwise`` when the body has none."""
    message = _message(body) or otherwise
    error = body.get("error")
    code = error.get("code") if isinstance(error, Mapping) else None
    if status in BUSY:
        return Overloaded(message, retry_after or 1.0)
    if status == 503:
        return Unavailable(message)
    # By its code: a gateway's 504 does not mean that a limit of the request has passed.
    if code == "expired":
        return Expired(message)
    if status in (400, 404, 413, 415, 422):
        return CODES.get(str(code), BadRequest)(message, _where(body))
    return ServerError(message, status)


def _message(body: Mapping[str, Any]) -> str | None:
    """The first message in the shapes that servers of the dialect use, in the order in which TypeSafe's SDKs look."""
    error, detail = body.get("error"), body.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], Mapping):
        detail = detail[0].get("msg")
    for found in (error, body, detail):
        text = found.get("message") if isinstance(found, Mapping) else found
        if isinstance(text, str) and text:
            return text
    return None


def _where(body: Mapping[str, Any]) -> tuple[str | int, ...]:
    detail = body.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], Mapping):
        steps = detail[0].get("loc")
        if isinstance(steps, list):
            return tuple(steps[1:] if steps[:1] == ["body"] else steps)
    return ()


def _retry_after(response: httpx.Response) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(response.headers[name]) * scale)
        # The header's other form is a date, and clocks differ.
        except (KeyError, ValueError):
            continue
    return None


def _question(question: Question) -> dict[str, Json]:
    body: dict[str, Json] = {"type": question.type}
    if question.instructions is not None:
        body["instructions"] = question.instructions
    if isinstance(question.criteria, Mapping):
        body["criteria"] = dict(question.criteria)
    elif question.criteria is not None:
        body["criteria"] = list(question.criteria)
    return body


def _answer(question: Question, body: Mapping[str, Any]) -> Answer:
    match question:
        case Noul():
            return NoulAnswer(body["noul"])
        case Score(criteria=levels):
            probabilities = tuple(body["probabilities"][str(i)] for i in range(len(levels)))
            return ScoreAnswer(body["score"], probabilities, tuple(levels), body["confidence"])
    # Servers promise no order of a map; ours is that of the question.
    ordered = {option: body["probabilities"][option] for option in question.option_ids}
    return ChoiceAnswer(body["choice"], ordered, body["confidence"])


def _media(item: MediaSource, otherwise: str) -> str:
    """``item`` as a data URL; text is sent as it is. Bytes are labelled ``otherwise``: readers look at the content."""
    if isinstance(item, str):
        return item
    if isinstance(item, Path):
        kind, data = mimetypes.guess_type(item.name)[0] or otherwise, _file(item)
    elif isinstance(item, bytes):
        kind, data = otherwise, item
    else:
        raise BadMedia(f"media are sent as text, bytes or a Path, got {type(item).__name__}; encode it first")
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadMedia(f"{path} cannot be read: {error.strerror}") from None
