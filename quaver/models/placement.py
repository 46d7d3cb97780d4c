"""Where a model runs and in which precision; "auto" becomes a value here and nowhere else."""

from __future__ import annotations

import torch

from quaver.errors import Unavailable

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def resolve_device(name: str) -> torch.device:
    """``auto`` is CUDA when there is a device, else the CPU.

    Raises Unavailable for a device that torch does not know or cannot reach.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(f"device {name!r} cannot be used here ({error}); use 'auto' or 'cpu'") from error
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 on CUDA and float32 elsewhere.

    bfloat16 is what releases are published and evaluated in, and half the memory. Most CPUs have no
    fast bfloat16 products, so there float32 is both quicker and exact. float16 is not offered: its
    range overflows in gated delta layers. float64 exists for checks.
    """
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPES:
        raise Unavailable(f"dtype {name!r} is not offered; use 'auto', {', '.join(map(repr, DTYPES))}")
    return DTYPES[name]


def prepare_thread() -> None:
    """Sets up the calling thread, and the workers it will start, to run models for good.

    Numbers below float32's normal range count as zero from here on. The gates of recurrent layers
    decay into that range, and CPUs are many times slower there: one sixth of a pass. Call it before
    the thread's first parallel operation, and never in a caller's thread.
    """
    torch.set_flush_denormal(True)
