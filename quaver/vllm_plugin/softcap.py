"""An attention softcap for vLLM's Triton kernels that is closer to the exact one: an option, off by default.

vLLM 0.32 and 0.33 compute ``cap * (1 - 2 / (exp(2y) + 1))``, ``y = score / cap``. That is finite for every score,
so nothing needs mending there: 0.30 and earlier gave inf from ``y = 84.8`` and NaN from 88.7. But it is neither odd
nor as close as ``quaver.heads.softcap_triton``: half the error near zero. The difference is far below the
bfloat16 rounding of attention weights, and it changes the numbers of every model with a softcap that the
process serves, so it is there for those who compare backends. Clef models have no attention softcap: for them
the option changes nothing.

``QUAVER_VLLM_SOFTCAP=1`` in the server's environment turns it on; its workers inherit that.
"""

from __future__ import annotations

import os
import sys

from vllm.logger import init_logger

OPTION = "QUAVER_VLLM_SOFTCAP"

logger = init_logger(__name__)


def wanted() -> bool:
    """Whether the option is on. Raises ValueError for a value beside 0 and 1."""
    value = os.environ.get(OPTION, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{OPTION} must be 0 or 1, got {value!r}")
    return value == "1"


def install() -> None:
    """Replaces vLLM's helper in every kernel file, loaded or not; again changes nothing.

    Call before a kernel is compiled. Raises RuntimeError where vLLM does not use Triton.
    """
    from vllm import triton_utils

    if not triton_utils.HAS_TRITON:
        raise RuntimeError(f"{OPTION}=1 is about vLLM's Triton kernels, and it uses none here; leave it out")
    from vllm.v1.attention.ops import triton_attention_helpers as helpers

    from quaver.heads.softcap_triton import apply_softcap

    theirs = helpers.apply_softcap
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and vars(module).get("apply_softcap") is theirs:
            module.apply_softcap = apply_softcap  # type: ignore[attr-defined]
    logger.info("%s=1: Quaver's softcap is in vLLM's Triton attention kernels", OPTION)
