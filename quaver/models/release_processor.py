"""The processor that a release comes with: tokenizer, patches and features, run as transformers has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from quaver.errors import BadMedia


class ReleaseProcessor:
    """Built on first use: a server that only reads text needs neither torchvision nor the release's
    processor files. Safe to share between threads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Fast tokenizers inside the processor are set up per call and must not be shared meanwhile.
        self._one_at_a_time = Lock()

    @cached_property
    def _processor(self) -> Any:
        try:
            from transformers import AutoProcessor

            factory: Any = AutoProcessor
            processor = factory.from_pretrained(self._path, local_files_only=True)
            # transformers will change what an unset cap means; releases were made without one.
            if getattr(processor.video_processor, "cap_pixels_per_frame", False) is None:
                processor.video_processor.cap_pixels_per_frame = False
        except Exception as error:  # a missing file, a missing torchvision and a broken one all differ
            raise BadMedia(f"this server reads text only: {error}") from error
        return processor

    def _call(self, text: str, **media: Any) -> Any:
        """The processor's tensors for ``text`` with its placeholders expanded. Raises ValueError as it does."""
        with self._one_at_a_time:
            return self._processor(text=[text], return_tensors="pt", **media)


def blame(name: str, items: Sequence[Any], single: Callable[[Any], object]) -> None:
    """Raises BadMedia for the first of ``items`` on which ``single`` fails."""
    for number, item in enumerate(items):
        try:
            single(item)
        except ValueError as error:
            raise BadMedia(f"item {number} of {name} cannot be used: {error}", (name, number)) from error
