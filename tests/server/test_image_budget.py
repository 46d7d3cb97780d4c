"""A Gemma 4 behind the server: the image budget of a request, and the settings in force, in both dialects."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from fastapi.testclient import TestClient
from gemma4_release import gemma4_release
from PIL import Image

import quaver
from quaver.models.gemma4_knobs import Gemma4Knobs
from quaver.server import create_app

QUESTION = {"type": "noul", "instructions": "Is it grey?"}
PREDICATE = {"type": "predicate", "name": "q", "instructions": "Is it grey?"}


def picture() -> str:
    file = BytesIO()
    Image.new("RGB", (48, 40), (90, 120, 90)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def systemone(**more: Any) -> dict[str, Any]:
    return {"state": "A wall.", "questions": {"q": QUESTION}, "images": [picture()], **more}


def decisions(**more: Any) -> dict[str, Any]:
    return {"input": "A wall.", "questions": [PREDICATE], "images": [picture()], **more}


def budget(tokens: Any) -> dict[str, Any]:
    return {"mm_processor_kwargs": {"max_soft_tokens": tokens}}


BODIES = {"/v1/systemone": (systemone, 422), "/v1/decisions": (decisions, 400)}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = gemma4_release(tmp_path_factory.mktemp("releases") / "tiny-12B")
    decider = quaver.load(str(folder), dtype="float32", knobs=Gemma4Knobs(image_budget=140, sliding_window=9))
    with TestClient(create_app(decider)) as client:
        yield client


@pytest.mark.parametrize("path", BODIES)
def test_a_request_chooses_and_hears_of_it(client: TestClient, path: str) -> None:
    make, _ = BODIES[path]
    served, coarser = (client.post(path, json=make(x_config=True, **wish)).json() for wish in ({}, budget(70)))
    assert [reply["x_config"]["image_budget"] for reply in (served, coarser)] == [140, 70]
    assert served["x_config"]["sliding_window"] == coarser["x_config"]["sliding_window"] == 9
    # 48 x 40 pixels: 12 x 10 tokens of at most 140, 9 x 7 of at most 70.
    assert served["usage"]["input_tokens"] - coarser["usage"]["input_tokens"] == 12 * 10 - 9 * 7
    assert "x_config" not in client.post(path, json=make()).json()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("wish", [100, "70", None])
def test_what_is_no_budget_is_refused(client: TestClient, path: str, wish: Any) -> None:
    make, status = BODIES[path]
    reply = client.post(path, json=make(**budget(wish)))
    assert reply.status_code == status
    error = reply.json()["error"]
    assert error["code"] == "invalid_body" and error["param"].startswith("mm_processor_kwargs")
    if wish == 100:
        assert "70, 140, 280, 560, 1120" in error["message"]


def test_states_of_a_batch_share_the_budget(client: TestClient) -> None:
    body = {**systemone(x_config=True, **budget(70)), "states": ["A wall.", "A door."]}
    del body["state"]
    results = client.post("/v1/systemone/batch", json=body).json()["results"]
    assert [result["x_config"]["image_budget"] for result in results] == [70, 70]


def test_the_models_list_has_the_settings_in_force(client: TestClient) -> None:
    assert client.get("/v1/models").json()["x_config"] == {
        "bidirectional": True,
        "bidirectional_full_layers": False,
        "fp32_layernorm_statistics": False,
        "fp32_vision_embedder": False,
        "image_budget": 140,
        "sliding_window": 9,
    }


def test_the_documents_schema_has_the_fields(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name in ("SystemOneBody", "DecisionsBody", "BatchBody"):
        assert {"mm_processor_kwargs", "x_config"} <= set(schemas[name]["properties"])
    for name in ("SystemOneReply", "DecisionsReply"):
        assert "x_config" in schemas[name]["properties"]
