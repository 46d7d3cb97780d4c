"""Which vLLM the plugin knows. What it hooks into is not promised by vLLM, so another version is left alone."""

from __future__ import annotations

SUPPORTED = ("0.32", "0.33")


def unsupported() -> str | None:
    """Why the installed vLLM is not one that we know; None when it is."""
    # The module's own version: distributions of vLLM go by several names.
    from vllm.version import __version__

    if ".".join(__version__.split(".")[:2]) in SUPPORTED:
        return None
    return (
        f"Quaver's plugin knows vLLM {' and '.join(SUPPORTED)}, this is {__version__}; nothing was registered, "
        f"so Clef releases are served as vLLM does without it. Install vllm>={SUPPORTED[0]},<0.34"
    )
