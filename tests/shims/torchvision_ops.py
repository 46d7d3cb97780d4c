"""Lets the PyPI build of torchvision load beside a CPU build of torch, for tests only.

That build registers fake kernels for two operators which only its CUDA extension defines, so its
import fails. Image resizing needs neither, and declaring their schemas first is enough. The hook
waits for the first ``import torchvision``, so a process that never asks pays nothing.
"""

from __future__ import annotations

import importlib.abc
import sys

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept_alive: list[object] = []  # a torch Library forgets its definitions when it is collected


class DeclareOperators(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        # transformers probes for the package by find_spec without importing it; declaring then is harmless.
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare()


def declare() -> None:
    """Declare the operators unless a working extension has done so."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        try:
            library.define(name + SCHEMA)
        except RuntimeError:
            continue
    _kept_alive.append(library)


def install() -> None:
    """Arm the hook once."""
    if "torchvision" not in sys.modules and not any(isinstance(f, DeclareOperators) for f in sys.meta_path):
        sys.meta_path.insert(0, DeclareOperators())


install()
