"""Where a model runs and in which precision; "auto" becomes a value here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

from quaver.errors import Unavailable

Made = TypeVar("Made")

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


def spare_memory(device: torch.device) -> int:
    """Bytes that are free on the device, or in the machine for the CPU; 8 GiB where it does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 8 << 30


def state_budget(device: torch.device, asked: int | None) -> int:
    """Bytes that known states may take: ``asked``, or a quarter of what is free once the model is loaded."""
    return spare_memory(device) // 4 if asked is None else asked


def step_tokens(device: torch.device) -> tuple[int, int | None]:
    """How many tokens a step has that uses the device well and ends soon, and how many of short prompts may
    be computed together without making each other wait; None when that is all of a step.

    A CPU's matrix products reach their peak at some 500 rows. Short requests that arrive meanwhile are let
    in between two layers, so a long step costs them little. On a GPU nothing can come between, but a step
    of thousands takes a fraction of a second.
    """
    return (4096, None) if device.type == "cuda" else (1024, 256)


def prepare_thread() -> None:
    """Sets up the calling thread, and the workers it will start, to run models for good.

    Numbers below float32's normal range count as zero from here on. The gates of recurrent layers
    decay into that range, and CPUs are many times slower there: one sixth of a pass. Call it before
    the thread's first parallel operation, and never in a caller's thread.
    """
    torch.set_flush_denormal(True)


def in_a_thread_that_ends(make: Callable[[], Made]) -> Made:
    """What ``make`` gives, computed on all cores without leaving OpenMP workers behind.

    A thread's workers stay as long as it does. While a process has more of them than there are CPUs they sleep between
    any two operations, the engine's too: its passes take 1.6 times as long.
    """
    with ThreadPoolExecutor(1, "quaver-once") as thread:
        return thread.submit(make).result()


@contextmanager
def on_one_core() -> Iterator[None]:
    """Inside, what the calling thread computes with torch keeps to that thread.

    Otherwise its first picture would bring OpenMP workers that stay as long as the thread does; see
    ``in_a_thread_that_ends``.
    """
    # A thread is given torch's number of workers when torch is first asked in it, which would undo the limit.
    torch.get_num_threads()
    with _libraries().limit(limits=1, user_api="openmp"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
