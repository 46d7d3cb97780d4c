"""Where media may come from, how large they may be, and their decoding to pixels, frames and samples."""

from quaver.media.audio import read_audio
from quaver.media.decoded import SAMPLE_RATE, Audio, Film, Image, Video
from quaver.media.film import read_film
from quaver.media.image import AS_STORED, UPRIGHT, ImageRule, read_image
from quaver.media.limits import MediaLimits
from quaver.media.video import read_video

__all__ = [
    "AS_STORED",
    "SAMPLE_RATE",
    "UPRIGHT",
    "Audio",
    "Film",
    "Image",
    "ImageRule",
    "MediaLimits",
    "Video",
    "read_audio",
    "read_film",
    "read_image",
    "read_video",
]
