"""The readout of a code-token checkpoint: one row per answer code, in a file beside its backbone."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from quaver.errors import BadRelease

READOUT_FILE = "readout.safetensors"


def load_readout(folder: Path, codes: int, hidden_size: int) -> Tensor:
    """The table [codes, hidden] of a release, in float32.

    Raises BadRelease for a file that is missing, cannot be read, or holds anything but one table of this shape.
    """
    file = folder / READOUT_FILE
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise BadRelease(f"the readout {file} cannot be read: {error}") from error
    expected = {"weight": (codes, hidden_size)}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise BadRelease(f"{file} has {found}; a readout of {codes} codes for this backbone is {expected}")
    return tensors["weight"].float()
