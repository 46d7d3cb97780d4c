"""What each kind of server says about itself, and calls that fail."""

from collections.abc import Callable
from typing import Any

import pytest

from quaver.errors import QuaverError, ServerError, Unavailable
from quaver.evaluate.compare import HttpServer, LocalServer
from quaver.evaluate.compare.fields import MISSING, point

Serve = Callable[..., tuple[Any, str]]
METRICS = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True"} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
"""
TOLD: dict[str, dict[str, Any]] = {
    "quaver": {"/v1/models": {"models": [{"name": "sparrow-1"}], "data": [{"id": "sparrow-1"}]}},
    "vllm": {
        "/version": {"version": "0.33.0"},
        "/v1/models": {"data": [{"id": "org/m@b", "root": "/w", "max_model_len": 4096}, {"id": "m@c", "root": "/v"}]},
        "/server_info": {"vllm_config": {"model_config": {"dtype": "torch.bfloat16"}}},
        "/metrics": METRICS,
    },
    "sglang": {"/get_model_info": {"model_path": "/w"}, "/get_server_info": {"attention_backend": "fa3"}},
    "llama.cpp": {"/props": {"build_info": "b7000-abc", "modalities": {"vision": True}}},
    "ollama": {
        "/api/version": {"version": "0.30.1"},
        "/api/tags": {"models": [{"name": "gemma4:12b", "digest": "sha256:77"}]},
        "/api/show": lambda body: {"details": {"quantization_level": "Q4_K_M"}, "asked": body["model"]},
    },
}


@pytest.mark.parametrize(
    ("kind", "pointer", "expected"),
    [
        ("quaver", "/models/models/0/name", "sparrow-1"),
        ("vllm", "/version/version", "0.33.0"),
        ("vllm", "/models/data/org~1m@b/max_model_len", 4096),
        ("vllm", "/models/data/m@c/root", "/v"),
        ("vllm", "/server_info/vllm_config/model_config/dtype", "torch.bfloat16"),
        ("vllm", "/metrics/vllm:cache_config_info/cache_dtype", "auto"),
        ("vllm", "/metrics/vllm:num_requests_running", MISSING),
        ("sglang", "/model_info/model_path", "/w"),
        ("sglang", "/server_info/attention_backend", "fa3"),
        ("llama.cpp", "/props/build_info", "b7000-abc"),
        ("llama.cpp", "/models/data/0/id", MISSING),
        ("ollama", "/tags/models/gemma4:12b/digest", "sha256:77"),
        ("ollama", "/show/details/quantization_level", "Q4_K_M"),
        ("ollama", "/show/asked", "gemma4:12b"),
        ("ollama", "/ps/models/0", MISSING),
    ],
)
def test_read_back(serve: Serve, kind: str, pointer: str, expected: Any) -> None:
    _, url = serve(told=TOLD[kind])
    said = HttpServer(kind, url, "chat", model="gemma4:12b").read_back()
    assert point(said, pointer) == expected


def test_passing_failures_are_tried_again_and_others_are_not(serve: Serve) -> None:
    body = {"model": "reader@base"}
    engine, url = serve(status=lambda _body, call: 503 if call < 3 else 200)
    reply, attempts = HttpServer("vllm", url, "chat", pause=0).ask(body)
    assert attempts == 3 and reply["model"] == "reader@base"
    engine, url = serve(status=lambda _body, _call: 422)
    with pytest.raises(ServerError, match="422"):
        HttpServer("vllm", url, "chat", pause=0).ask(body)
    assert engine.calls == 1
    with pytest.raises(Unavailable):
        HttpServer("vllm", "http://127.0.0.1:9", "chat", pause=0).ask(body)


def test_a_decider_in_this_process_does_not_chat() -> None:
    with pytest.raises(QuaverError, match="no chat endpoint"):
        LocalServer(None, "chat")  # type: ignore[arg-type]
