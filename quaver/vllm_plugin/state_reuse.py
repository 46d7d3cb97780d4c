"""Whether joint reads take a known state from vLLM's prefix cache. No model code: the front end asks too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import VllmConfig

KEY, NAME = "quaver", "state_reuse"


def reuses_state(config: VllmConfig) -> bool:
    """What ``--additional-config '{"quaver": {"state_reuse": true}}'`` says; off when it says nothing.

    Raises ValueError when it is on together with something that it does not go with.
    """
    given = config.additional_config.get(KEY, {}) if isinstance(config.additional_config, dict) else {}
    if not given.get(NAME, False):
        return False
    parallel = config.parallel_config
    conflicts = {
        "--no-enable-prefix-caching": not config.cache_config.enable_prefix_caching,
        "a KV connector or KV offloading": config.kv_transfer_config is not None,
        "context parallelism": parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size > 1,
        "dual batch overlap": parallel.use_ubatching,
    }
    if found := [name for name, there in conflicts.items() if there]:
        raise ValueError(f"{NAME} does not go with {', '.join(found)}; leave one of them out")
    return True
