"""The field's own suite and real clients against vLLM with our plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest
import typesafe_sdk

from tests.vllm.conftest import KEY

OPTIONS = {"billing": "payments", "tech": "bugs and outages", "other": None}


def test_jevcompat(chat: httpx.Client, tmp_path: Path) -> None:
    """All that it asks for, questions that do not see each other among it."""
    report = tmp_path / "report.json"
    command = [Path(sys.executable).parent / "jevcompat", "test", str(chat.base_url), "--key", KEY, "--json", report]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    summary = json.loads(report.read_text())["summary"]
    assert (summary["MUST"]["passed"], summary["MUST"]["tested"]) == (32, 32)
    assert (summary["SHOULD"]["passed"], summary["SHOULD"]["tested"]) == (15, 15)


def test_typesafe_sdk(chat: httpx.Client) -> None:
    questions = {
        "refund": typesafe_sdk.Noul(instructions="Does the writer ask for money back?"),
        "queue": typesafe_sdk.Choice(instructions={"ask": "Where to?"}, criteria=OPTIONS),
        "heat": typesafe_sdk.Score(instructions="How angry?", criteria=["calm", "annoyed", "furious"]),
    }
    with typesafe_sdk.TypeSafeClient(api_key=KEY, base_url=str(chat.base_url)) as client:
        # Long enough for the client to compress it.
        reply = client.system_one(state={"ticket": "word " * 1000}, questions=questions)
        listed = client.models.list()
    assert set(reply.choices["queue"].probabilities) == set(OPTIONS)
    assert sum(reply.scores["heat"].probabilities.values()) == pytest.approx(1, abs=1e-9)
    assert {"jev-latest", "jev-preview"} <= {model.name for model in listed.models}
    stranger = typesafe_sdk.TypeSafeClient(api_key="wrong", base_url=str(chat.base_url))
    with stranger, pytest.raises(typesafe_sdk.TypeSafeAuthenticationError, match="not valid"):
        stranger.system_one(state="x", questions={"q": typesafe_sdk.Noul(instructions="Yes?")})


def test_openai(chat: httpx.Client) -> None:
    with openai.OpenAI(api_key=KEY, base_url=str(chat.base_url.join("/v1"))) as client:
        decision = client.decisions.create(
            model="gpt-6-luna",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Card was charged two times"}]}],
            questions=[{"type": "predicate", "name": "refund", "instructions": "Is money asked back?"}],
        )
        # vLLM's own name of the model is in the same list, and its own routes take it.
        names = [model.id for model in client.models.list()]
        completed = client.chat.completions.create(
            model=names[0], messages=[{"role": "user", "content": "Hello"}], max_tokens=1
        )
    assert decision.answers[0].name == "refund"
    assert 0 < decision.answers[0].probability < 1
    assert completed.usage is not None and completed.usage.completion_tokens == 1
