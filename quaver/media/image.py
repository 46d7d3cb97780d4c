"""Images to RGB pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps, UnidentifiedImageError

from quaver.errors import BadMedia
from quaver.media.decoded import Image
from quaver.media.limits import MediaLimits
from quaver.media.rule import ImageRule

# Not every format of Pillow: some start other programs or load outside files.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def decode_image(
    data: bytes, limits: MediaLimits, upright: bool, scale_deep: bool, most_pixels: int | None = None
) -> Image:
    """A file's picture, or its first one, read by the rule of these values.

    Raises BadMedia for what is no image, is damaged, or is larger than is allowed.
    """
    # The format is found by its content alone: names and types that came along are the sender's word.
    with _refusing(limits), Pillow.open(BytesIO(data), formats=FORMATS) as image:
        return _pixels(image, limits, ImageRule(upright, scale_deep, most_pixels))


def from_pillow(image: Pillow.Image, limits: MediaLimits, rule: ImageRule) -> Image:
    """The picture that a caller opened or made; raises as ``decode_image``."""
    with _refusing(limits):
        return _pixels(image, limits, rule)


@contextmanager
def _refusing(limits: MediaLimits) -> Iterator[None]:
    """Whatever Pillow raises becomes BadMedia."""
    known = ", ".join(FORMATS)
    try:
        yield
    except BadMedia:
        raise
    except Pillow.DecompressionBombError as error:
        raise BadMedia(f"the image has too many pixels; at most {limits.image_pixels} in all are allowed") from error
    except MemoryError as error:
        raise BadMedia("the image needs more memory to decode than is allowed; send a smaller one") from error
    except UnidentifiedImageError as error:
        raise BadMedia(f"the image cannot be decoded; send a complete {known} file") from error
    except Exception as error:  # damaged files make Pillow's readers raise nearly anything
        raise BadMedia(f"the image cannot be decoded ({error}); send a complete {known} file") from error


def _pixels(image: Pillow.Image, limits: MediaLimits, rule: ImageRule) -> Image:
    # The header gives the size; a bomb is refused before any pixel of it is unpacked.
    limits.check_size("image", *image.size)
    image.load()
    if rule.upright:
        image = _upright(image)
    if rule.scale_deep and image.mode.startswith("I;16"):
        # Pillow's own conversion clips at 255, which makes nearly all of a 16-bit picture white.
        image = Pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return Image(np.array(_shrunk(image.convert("RGB"), rule.most_pixels)))


def _shrunk(image: Pillow.Image, most: int | None) -> Pillow.Image:
    """Of at most ``most`` pixels, by the sides that vLLM's ``cap_pixels`` gives it."""
    width, height = image.size
    if most is None or width * height <= most:
        return image
    scale = math.sqrt(most / (width * height))
    return image.resize((max(1, int(width * scale)), max(1, int(height * scale))), Pillow.Resampling.BICUBIC)


def _upright(image: Pillow.Image) -> Pillow.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data of any shape come along; what cannot be read turns nothing
        return image
