"""Where media may come from, how large they may be, and their decoding to pixels, frames and samples."""

from quaver.media.decoded import SAMPLE_RATE, Audio, Film, Image, Video
from quaver.media.limits import MediaLimits
from quaver.media.policy import MediaPolicy
from quaver.media.pool import DecoderPool
from quaver.media.reader import MediaReader, read_audio, read_film, read_image, read_video
from quaver.media.rule import AS_STORED, D1_IMAGE, UPRIGHT, ImageRule

__all__ = [
    "AS_STORED",
    "D1_IMAGE",
    "SAMPLE_RATE",
    "UPRIGHT",
    "Audio",
    "DecoderPool",
    "Film",
    "Image",
    "ImageRule",
    "MediaLimits",
    "MediaPolicy",
    "MediaReader",
    "Video",
    "read_audio",
    "read_film",
    "read_image",
    "read_video",
]
