"""Images to RGB pixels."""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageOps, UnidentifiedImageError

from quaver.errors import BadMedia
from quaver.media.limits import DEFAULT_LIMITS, MediaLimits
from quaver.media.source import read_bytes

# Not every format of Pillow: some start other programs or load outside files.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def read_image(source: object, limits: MediaLimits = DEFAULT_LIMITS) -> Image.Image:
    """An RGB image, turned as its EXIF data says, with alpha dropped and not blended.

    ``source`` as in ``read_bytes``, or a Pillow image. Animations give their first frame. Raises
    BadMedia for what is no image, is damaged, or has more pixels than ``limits`` allow.
    """
    if isinstance(source, Image.Image):
        return _to_rgb(source, limits)
    data = read_bytes(source, limits.image_bytes)
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            return _to_rgb(image, limits)
    except BadMedia:
        raise
    except UnidentifiedImageError as error:
        raise BadMedia(f"the image cannot be decoded; send a complete {', '.join(FORMATS)} file") from error
    except Exception as error:  # damaged files make Pillow's readers raise nearly anything
        raise BadMedia(f"the image cannot be decoded ({error}); send a complete {', '.join(FORMATS)} file") from error


def _to_rgb(image: Image.Image, limits: MediaLimits) -> Image.Image:
    # The header gives the size; a bomb is refused before any pixel of it is unpacked.
    width, height = image.size
    if width * height > limits.image_pixels:
        raise BadMedia(f"the image has {width}x{height} pixels; at most {limits.image_pixels} in all are allowed")
    rgb = ImageOps.exif_transpose(image).convert("RGB")
    # A palette's transparent colour would live on in the info, and later readers blend by it.
    rgb.info.clear()
    return rgb
