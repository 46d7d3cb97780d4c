"""The prompts that our own engine reads, for a backbone of ours."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.engine.causal import AskedOf, CausalPrompt
from quaver.models.backbone import Backbone, Media
from quaver.prompts.encoded import Encoded
from quaver.prompts.label_encoded import LabelPlace


@dataclass(frozen=True, slots=True)
class CausalPrompts:
    """Makes them of what ``quaver.prompts`` has written."""

    backbone: Backbone

    def joint(self, encoded: Encoded, media: Media | None, salt: str) -> CausalPrompt[Encoded]:
        """A prompt with the questions of a request, after its media and its state."""
        return self._prompt(encoded, encoded.media_start, media, salt)

    def label(self, place: LabelPlace, media: Media | None, salt: str) -> CausalPrompt[LabelPlace]:
        """One place at which the labels of a question are read; a prompt with media begins with their ids."""
        return self._prompt(place, 0, media, salt)

    def _prompt(self, encoded: AskedOf, start: int, media: Media | None, salt: str) -> CausalPrompt[AskedOf]:
        inputs = self.backbone.prepare(encoded.ids, media)
        if media is None:
            return CausalPrompt(encoded, inputs, salt)
        digests = tuple((start + position, digest) for position, digest in media.digests)
        return CausalPrompt(encoded, inputs, salt, digests, media_end=start + len(media.ids))
