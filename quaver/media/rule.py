"""What becomes of that which RGB bytes cannot say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageRule:
    """What a release's reference makes of a picture.

    ``upright``: turned as the EXIF data say. ``scale_deep``: grey of 16 bits keeps its upper byte; otherwise
    it is cut at 255, as Pillow does. Alpha is dropped and not blended under every rule.
    """

    upright: bool
    scale_deep: bool


#: Clef and Clef-flash.
UPRIGHT = ImageRule(upright=True, scale_deep=True)
#: Clef-omni, which reads with Pillow's ``convert("RGB")`` alone.
AS_STORED = ImageRule(upright=False, scale_deep=False)
