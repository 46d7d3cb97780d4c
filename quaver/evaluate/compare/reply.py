"""What one reply says: facts for the gate, content for the judge."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.evaluate.compare.fields import point
from quaver.evaluate.compare.plan import Case, Check, Endpoint, Plan
from quaver.evaluate.loops import Loop, find_loop, longest_repetition
from quaver.questions import Json

#: Finish reasons that servers document; another one means that the reply is not understood.
FINISH_REASONS = frozenset({"stop", "length", "repetition", "tool_calls", "content_filter", "eos", "abort"})


@dataclass(frozen=True, slots=True)
class Grade:
    """``passed`` of ``checks`` hold. ``document`` is the parsed reply, ``text`` its content byte for byte."""

    text: str
    document: Json
    parsed: bool
    passed: int
    checks: int
    loop: Loop | None = None


def facts(reply: Mapping[str, Any]) -> dict[str, Json]:
    """Facts of a reply of any endpoint that a proof may name; what the server did not say is absent."""
    usage = _object(reply.get("usage"))
    details = _object(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    fingerprint = reply.get("system_fingerprint")
    parts = str(fingerprint or "").split("|")
    found = {
        "model": reply.get("model"),
        "fingerprint": fingerprint,
        "image_digest": next((part for part in parts if part.startswith("sha256:")), None),
        "prompt_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
        "image_tokens": _object(details.get("multimodal_tokens")).get("image"),
        "cached_tokens": details.get("cached_tokens"),
        "finish_reason": finish_reason(reply),
    }
    extras = {name: value for name, value in reply.items() if name.startswith("x_") and name != "x_timing"}
    return {name: value for name, value in (found | extras).items() if value is not None}


def finish_reason(reply: Mapping[str, Any]) -> str | None:
    choices = reply.get("choices")
    return choices[0].get("finish_reason") if isinstance(choices, list) and choices else None


def text_of(endpoint: Endpoint, reply: Mapping[str, Any]) -> str:
    """The content alone, without ids and times, so that equal answers are equal bytes."""
    if endpoint == "chat":
        choices = reply.get("choices") or [{}]
        return str(_object(choices[0].get("message")).get("content") or "")
    return json.dumps(reply.get("answers"), sort_keys=True, ensure_ascii=False)


def grade(plan: Plan, case: Case, reply: Mapping[str, Any]) -> Grade:
    """The reply measured against the case's checks; a generated text also for a loop at its end."""
    text = text_of(plan.endpoint, reply)
    document, parsed = _parsed(plan, text)
    passed = sum(holds(check, text, document) for check in case.checks) if parsed else 0
    loop = None
    if plan.endpoint == "chat":
        loop = find_loop(text, finish_reason(reply), longest_in_gold=longest_repetition(case.gold))
    return Grade(text, document, parsed, passed, len(case.checks), loop)


def holds(check: Check, text: str, document: Json) -> bool:
    found = text if check.at is None else point(document, check.at)
    if check.kind == "is":
        return bool(found == check.value)
    if check.kind == "has":
        return str(check.value) in (found if isinstance(found, (str, list)) else str(found))
    return re.search(str(check.value), str(found)) is not None


def labelled(answers: Json) -> dict[str, dict[str, Json]]:
    """Answers of either decisions dialect by question id, each with the ``label`` that it comes down to.

    Raises ValueError or a lookup error when an answer is not of a known form.
    """
    if isinstance(answers, list):
        answers = {str(answer.get("name") or i): answer for i, answer in enumerate(answers)}
    return {name: {**answer, "label": _label(answer)} for name, answer in answers.items()}


def probabilities(answer: Mapping[str, Any]) -> dict[str, float]:
    """Probability by option, whatever the dialect."""
    if "noul" in answer or "probability" in answer:
        return {"true": float(answer["noul"] if "noul" in answer else answer["probability"])}
    given = answer["probabilities"]
    if isinstance(given, list):
        return {str(entry["value"]): float(entry["probability"]) for entry in given}
    return {str(option): float(p) for option, p in given.items()}


def _label(answer: Mapping[str, Any]) -> str:
    if "choice" in answer:
        return str(answer["choice"])
    by_option = probabilities(answer)
    if list(by_option) == ["true"]:
        return "true" if by_option["true"] >= 0.5 else "false"
    return max(by_option, key=by_option.__getitem__)


def _parsed(plan: Plan, text: str) -> tuple[Json, bool]:
    try:
        if plan.endpoint != "chat":
            return labelled(json.loads(text)), True
        return (json.loads(text), True) if plan.parse == "json" else (text, bool(text.strip()))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None, False


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
