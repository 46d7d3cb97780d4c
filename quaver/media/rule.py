"""What becomes of that which RGB bytes cannot say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageRule:
    """What a release's reference makes of a picture.

    ``upright``: turned as the EXIF data say. ``scale_deep``: grey of 16 bits keeps its upper byte; otherwise
    it is cut at 255, as Pillow does. A picture with more than ``most_pixels`` is shrunk to about as many, its
    shape kept. Alpha is dropped and not blended under every rule.
    """

    upright: bool
    scale_deep: bool
    most_pixels: int | None = None


#: Clef and Clef-flash.
UPRIGHT = ImageRule(upright=True, scale_deep=True)
#: Clef-omni, which reads with Pillow's ``convert("RGB")`` alone.
AS_STORED = ImageRule(upright=False, scale_deep=False)
#: Liquid's d1.
D1_IMAGE = ImageRule(upright=True, scale_deep=True, most_pixels=1024 * 1024)
