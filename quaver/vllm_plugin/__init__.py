"""Quaver inside vLLM: Clef's model classes, the joint head as a pooler, and our wire as vLLM's endpoint.

``VLLM_PLUGINS=quaver vllm serve MODEL`` loads the two functions below by their entry points. vLLM calls
``register`` in every process it starts, so nothing is imported here before it is known to be needed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from typing import Any

#: A child of vLLM's logger, so its level and format hold.
logger = logging.getLogger("vllm.plugins.quaver")

NAME = "quaver"


def register() -> None:
    """Entry point ``vllm.general_plugins``: makes vLLM know Clef releases. Again changes nothing.

    Only where ``VLLM_PLUGINS`` names the plugin: without it vLLM calls whatever is installed, and a release
    would be read by our model while our endpoint, which vLLM loads by name only, is missing.
    """
    if NAME not in os.environ.get("VLLM_PLUGINS", "").split(","):
        return
    from quaver.vllm_plugin import versions

    if (reason := versions.unsupported()) is not None:
        logger.warning("%s", reason)
        return
    from quaver.vllm_plugin import configs, softcap

    configs.register()
    if softcap.wanted():
        softcap.install()
    if in_front_end():
        from quaver.vllm_plugin import media_cache

        media_cache.install()


def endpoint_plugin() -> Any:
    """Entry point ``vllm.endpoint_plugins``: our routes. Raises RuntimeError with a vLLM that we do not know."""
    from quaver.vllm_plugin import versions

    if (reason := versions.unsupported()) is not None:
        raise RuntimeError(reason)
    from quaver.vllm_plugin.endpoint import QuaverEndpoint

    return QuaverEndpoint()


def in_front_end() -> bool:
    """Whether this process takes requests. Engine cores and workers are vLLM's children, by these names."""
    return not multiprocessing.current_process().name.startswith(("EngineCore", "VllmWorker"))
