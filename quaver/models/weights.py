"""A backbone's weights from its release folder, all of them and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from quaver.errors import BadRelease


def load_model(
    factory: Any,
    path: Path,
    device: torch.device,
    dtype: torch.dtype,
    unused: tuple[str, ...] = (),
    config: Any = None,
) -> Any:
    """The transformers model class ``factory`` with the weights in ``path``.

    ``unused`` are name prefixes of published tensors that belong to parts which are not loaded, ``config``
    stands in for the configuration in ``path``.
    Raises BadRelease for any other missing, unexpected or misshapen tensor and for files that cannot be read.
    """
    try:
        model, report = factory.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            device_map=None if device.type == "cpu" else {"": str(device)},
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers and safetensors document no common base
        raise BadRelease(f"the backbone in {path} cannot be loaded: {error}") from error
    for problem in ("missing", "unexpected", "mismatched"):
        # A mismatch is reported as name, shape found and shape expected.
        found = sorted(key if isinstance(key, str) else key[0] for key in report[f"{problem}_keys"])
        names = [name for name in found if not (problem == "unexpected" and name.startswith(unused))]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BadRelease(f"the backbone in {path} has {problem} tensors: {names[0]}{more}")
    return model
