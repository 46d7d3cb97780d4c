"""Reading with a backbone whose tokens see what follows them: every prompt in one piece, nothing kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import torch

from quaver.engine.causal import AskedOf, CausalHead, CausalPrompt, Record
from quaver.engine.job import Reading
from quaver.models.backbone import Backbone, Row


@dataclass(frozen=True, slots=True)
class UncutPrompts(Generic[AskedOf]):
    """``backbone`` and ``head`` behind a ``WholeReader``: no part of a prompt means the same beside another rest."""

    backbone: Backbone
    head: CausalHead[AskedOf]

    @torch.inference_mode()
    def read(self, prompt: CausalPrompt[AskedOf]) -> Reading:
        """What the head says of one prompt."""
        [computed] = self.backbone.forward([Row(prompt.inputs, 0, prompt.tokens)])
        tail = computed.hidden[prompt.encoded.state_end :]
        [read] = self.head.read([Record(prompt.encoded, self.head.memory(computed.hidden), tail)])
        return Reading(read.logits, prompt.tokens, 0, read.labels)

    def stats(self) -> dict[str, int]:
        """Nothing is kept."""
        return {"state_cache_bytes": 0, "state_cache_budget": 0, "state_cache_nodes": 0, "cache_evictions": 0}

    def shrink(self) -> None:
        """Gives back what the device holds for later."""
        if self.backbone.device.type == "cuda":
            torch.cuda.empty_cache()
