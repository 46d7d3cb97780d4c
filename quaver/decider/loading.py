"""How a release is loaded, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quaver.engine.causal import CausalHead, CausalReader
from quaver.media import MediaReader
from quaver.models.backbone import Backbone
from quaver.models.placement import state_budget
from quaver.prompts.tokenizer import SpecialTokens
from quaver.questions import LabelRule


@dataclass(frozen=True, slots=True)
class Loading:
    """The arguments of ``load`` that its kinds of release have in common; see there."""

    device: str
    dtype: str
    special_tokens: SpecialTokens
    max_length: int | None
    state_cache_bytes: int | None
    deterministic: bool
    rule: LabelRule
    media: MediaReader

    def causal(self, backbone: Backbone, head: CausalHead[Any]) -> CausalReader[Any]:
        """The reader of a backbone whose states are kept. Call it once the weights are loaded: the cache takes its
        share of the memory that is then free."""
        return CausalReader(backbone, head, state_budget(backbone.device, self.state_cache_bytes), self.deterministic)
