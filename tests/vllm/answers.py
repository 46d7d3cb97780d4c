"""Golden cases on the wire: bodies with their media inside, and the probabilities of a reply."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def body(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The request of a case whose media lie in ``folder``; data URLs stay what they are."""

    def source(item: str) -> str:
        if item.startswith("data:"):
            return item
        return f"data:;base64,{base64.b64encode((folder / item).read_bytes()).decode()}"

    asked = {key: value for key, value in case["request"].items() if key != "model"}
    for kind in ("images", "audio", "videos"):
        if asked.get(kind):
            asked[kind] = [source(item) for item in asked[kind]]
    return asked


def probabilities(reply: dict[str, Any], case: dict[str, Any]) -> Iterator[float]:
    """Option by option in the order of the prompt; of a noul that of true."""
    for question in case["questions"]:
        answer = reply["answers"][question["id"]]
        if question["type"] == "noul":
            yield answer["noul"]
        else:
            yield from (answer["probabilities"][name] for name in question["option_ids"])


def expected(case: dict[str, Any]) -> Iterator[float]:
    """What the reference gave, in that order."""
    for question, row in zip(case["questions"], case["probabilities_fp32"], strict=True):
        yield from row[:1] if question["type"] == "noul" else row
