"""The mask probe and vLLM's own server, whose attention on a CPU has no mask for images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from gemma4_release import gemma4_release

from quaver.evaluate.mask import probe_mask, probe_pictures

#: What vLLM's processor asks the tokenizer for.
TOKENS = {
    "pad_token": "<|endoftext|>",
    "extra_special_tokens": {
        "image_token": "<|image|>",
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "video_token": "<|video|>",
        "audio_token": "<|audio|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
    },
}


def release(folder: Path) -> Path:
    """A tiny Gemma 4 without a tower, with heads as wide as vLLM's kernel takes them."""
    gemma4_release(folder, head_dim=32, global_head_dim=64)
    _extend(folder / "tokenizer_config.json", TOKENS)
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    _extend(folder / "config.json", {"vision_config": {**vision, "num_soft_tokens": 70}})
    return folder


def _extend(file: Path, more: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def test_an_image_does_not_see_itself_in_vllm_on_a_cpu(serve: Any, tmp_path: Path) -> None:
    options = ["--dtype", "float32", "--max-model-len", "2048"]
    with serve(
        release(tmp_path / "gemma4"), tmp_path / "server.log", *options, VLLM_PLUGINS="", TORCHDYNAMO_DISABLE="1"
    ) as served:

        def ask(body: dict[str, Any]) -> Any:
            reply = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=300)
            assert reply.status_code == 200, reply.text
            return reply.json()

        model = {"model": httpx.get(f"{served.url}/v1/models").json()["data"][0]["id"]}
        below = probe_mask(ask, model, probe_pictures(96, 96))
        everywhere = probe_mask(ask, model, (probe_pictures(96, 96)[0], probe_pictures(96, 96, seed=1)[0]))
    assert (below.tokens, below.verdict) == (64, "causal")
    # The model does see: pictures that differ above as well change what is read there.
    assert everywhere.change > 0.1
