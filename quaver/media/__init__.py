"""Where media may come from, how large they may be, and their decoding to pixels and frames."""

from quaver.media.image import read_image
from quaver.media.limits import MediaLimits
from quaver.media.video import Video, read_video

__all__ = ["MediaLimits", "Video", "read_image", "read_video"]
