"""Chat models of many families against their own forward, and those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chat_families
import pytest
import torch
from chat_families import FAMILIES, save, tiny_chat

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Media, Row
from quaver.models.chat import ChatBackbone, load_chat

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_in_parts_and_in_company_equal_the_models_own_forward(family: str) -> None:
    model = tiny_chat(family)
    texts = [torch.randint(200, (length,), generator=torch.Generator().manual_seed(length)) for length in (40, 23)]
    with torch.inference_mode():
        own = [model(input_ids=text[None]).logits[0] for text in texts]
    backbone = ChatBackbone(model)
    long, short = (backbone.prepare(text.tolist()) for text in texts)
    first, whole = backbone.forward([Row(long, 0, 17, cuts=(17,), keep=17), Row(short, 0, 23)])
    [rest] = backbone.forward([Row(long, 17, 40, past=(first.kept,), state=first.snapshots[17])])
    hidden = [torch.cat([first.hidden, rest.hidden]), whole.hidden]
    for expected, rows in zip(own, hidden, strict=True):
        logits = rows @ backbone.output_embeddings.T
        if cap := backbone.softcap:
            logits = cap * torch.tanh(logits / cap)
        assert torch.allclose(logits, expected, atol=2e-4), (logits - expected).abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_loads(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    assert load_chat(tmp_path, CPU, torch.float32).hidden_size == chat_families.HIDDEN
    assert load_chat(tmp_path, CPU, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gemma2", {}, "attention scores are capped"),
        ("cohere", {}, r"reads packed rows otherwise .* not supported"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "depend on the length",
        ),
        ("gpt_neo", {}, "cannot be read in packed rows"),
        ("mamba", {}, "mamba"),
    ],
)
def test_a_family_that_is_not_read_rightly_is_refused(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRelease, match=message):
        ChatBackbone(tiny_chat(family, **changes))


def test_weights_that_are_not_all_there(tmp_path: Path) -> None:
    save("llama", tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(BadRelease, match="cannot be loaded"):
        load_chat(tmp_path, CPU, torch.float32)


def test_media_are_refused() -> None:
    with pytest.raises(BadRequest, match="reads text"):
        ChatBackbone(tiny_chat("llama")).prepare([1, 2], Media((1,), {}))
