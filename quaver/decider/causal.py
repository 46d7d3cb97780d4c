"""The prompts that our own engine reads, for a backbone of ours."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.engine.causal import CausalPrompt
from quaver.models.backbone import Backbone, Media
from quaver.prompts.encoded import Encoded
from quaver.prompts.label_encoded import LabelPlace


@dataclass(frozen=True, slots=True)
class CausalPrompts:
    """Makes them of what ``quaver.prompts`` has written."""

    backbone: Backbone

    def joint(self, encoded: Encoded, media: Media | None, salt: str) -> CausalPrompt[Encoded]:
        """A prompt with the questions of a request, after its media and its state."""
        inputs = self.backbone.prepare(encoded.ids, media)
        if media is None:
            return CausalPrompt(encoded, inputs, salt)
        start = encoded.media_start
        digests = tuple((start + position, digest) for position, digest in media.digests)
        return CausalPrompt(encoded, inputs, salt, digests, media_end=start + len(media.ids))

    def label(self, place: LabelPlace, salt: str) -> CausalPrompt[LabelPlace]:
        """One place at which the labels of a question are read."""
        return CausalPrompt(place, self.backbone.prepare(place.ids), salt)
