"""A real chat model from its file to an answer: SmolLM2-135M behind ``quaver serve``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_models import smollm2

import quaver
from tests.conformance.conftest import free_port, wait_until_ready

STATE = "I was charged twice this month and nobody answers my mails. Refund me now!"
BODY = {
    "state": STATE,
    "questions": {
        "complaint": {"type": "noul", "instructions": "Is this a complaint?"},
        "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "payments", "bugs": None}},
    },
}


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "quaver", "serve", str(folder), "--port", str(port), "--min-label-mass", "1"]
    process = subprocess.Popen(command)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def reply(url: str) -> dict[str, Any]:
    response = httpx.post(f"{url}/v1/systemone", json=BODY, timeout=60)
    assert response.status_code == 200
    answered: dict[str, Any] = response.json()
    return answered


def test_the_reply_says_what_was_read(reply: dict[str, Any]) -> None:
    assert reply["model"].startswith("smollm2-135m@")
    assert reply["x_reading"] == "independent"
    assert all(0 < mass < 1 for mass in reply["x_label_mass"].values())
    # No labels hold all of the next token, which is what this server was told to ask for.
    assert all(answer["x_abstain"] for answer in reply["answers"].values())


def test_the_client_asks_for_corrections(url: str, reply: dict[str, Any]) -> None:
    rule = quaver.questions.LabelRule(min_mass=0.0, prior_correction=True, orders=2)
    questions = {"complaint": quaver.Noul("Is this a complaint?")}
    with quaver.Client(url) as client:
        answers = client.ask(quaver.questions.Request(STATE, questions, labels=rule))
    assert answers.labels is not None
    facts = answers.labels["complaint"]
    assert 0 < facts.mass < 1 and facts.order_spread is not None
    assert answers.abstained == {"complaint": False}
    assert answers["complaint"].probability != reply["answers"]["complaint"]["noul"]
