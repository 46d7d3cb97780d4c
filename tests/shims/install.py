"""Arms the shims of this folder in the environment that runs this file: a ``.pth`` file in its site-packages."""

from __future__ import annotations

import sysconfig
from pathlib import Path

target = Path(sysconfig.get_paths()["purelib"]) / "quaver_test_shims.pth"
target.write_text(f"{Path(__file__).resolve().parent}\nimport torchvision_ops\n")
