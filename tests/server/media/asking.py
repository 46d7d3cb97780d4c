"""Bodies with media, and the answers to them as flat numbers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
from vectors import FLASH, OMNI

FOLDER = FLASH / "media"
PICTURE = "photo_300x200.jpg"
CLIP = "clip8_96x64.mp4"
SOUND = OMNI / "media/mono_8k.wav"
FILM = OMNI / "media/sound_96x64.mp4"
TYPES = {".mp4": "video/mp4", ".jpg": "image/jpeg", ".wav": "audio/wav"}
TEXT = "The parcel came late and the box was torn."
NOUL = {"type": "noul", "instructions": "Is it late?"}
CHOICE = {"type": "choice", "instructions": "What is it?", "criteria": {"z": "a parcel", "a": None}}
QUESTIONS = {"late": NOUL, "what": CHOICE}
#: The same in the other dialect.
ASKED = [
    {"type": "predicate", "name": "late", "instructions": NOUL["instructions"]},
    {
        "type": "choice",
        "name": "what",
        "instructions": CHOICE["instructions"],
        "choices": [{"value": "z", "description": "a parcel"}, {"value": "a"}],
    },
]


def data_url(name: str | Path) -> str:
    return f"data:{TYPES[Path(name).suffix]};base64,{raw(name)}"


def raw(name: str | Path) -> str:
    """Base64 of a file, by its path or by its name in the folder."""
    return base64.b64encode((FOLDER / name).read_bytes()).decode()


def part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": TEXT}, *parts]}]}


def post(
    client: httpx.Client, path: str, body: dict[str, Any], files: dict[str, bytes] | None = None
) -> httpx.Response:
    if not files:
        return client.post(path, json=body)
    form = {"request": (None, json.dumps(body), "application/json")}
    return client.post(path, files={**form, **{name: (name, data) for name, data in files.items()}})


def systemone(client: httpx.Client, body: dict[str, Any], files: dict[str, bytes] | None = None) -> dict[str, float]:
    """Probabilities of both questions, by option."""
    reply = post(client, "/v1/systemone", {"state": TEXT, "questions": QUESTIONS, **body}, files)
    assert reply.status_code == 200, reply.text
    answers = reply.json()["answers"]
    return {"late": answers["late"]["noul"], **answers["what"]["probabilities"]}


def decisions(client: httpx.Client, body: dict[str, Any]) -> dict[str, float]:
    reply = client.post("/v1/decisions", json={"input": TEXT, "questions": ASKED, **body})
    assert reply.status_code == 200, reply.text
    late, what = reply.json()["answers"]
    return {"late": late["probability"], **{item["value"]: item["probability"] for item in what["probabilities"]}}
