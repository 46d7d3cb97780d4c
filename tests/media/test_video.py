"""Videos: the frames that were asked for, and what is refused."""

from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest

from quaver.errors import BadMedia
from quaver.media import MediaLimits, read_video

MEDIA = Path(__file__).parents[1] / "golden/clef-flash-tiny/media"
CLIP = MEDIA / "clip8_96x64.mp4"


def everything(total: int, _fps: float) -> list[int]:
    return list(range(total))


def encode(frames: int, container: str, codec: str, side: int = 32) -> bytes:
    file = BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=8)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            picture = np.full((side, side, 3), number * 10, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        output.mux(stream.encode())
    return file.getvalue()


def test_only_the_chosen_frames_are_kept() -> None:
    asked = []

    def choose(total: int, fps: float) -> list[int]:
        asked.append((total, fps))
        return [1, 4]

    whole = read_video(CLIP, everything)
    some = read_video(CLIP, choose)
    assert asked == [(whole.total, whole.fps)]
    assert whole.frames.shape == (whole.total, 64, 96, 3)
    assert some.indices == (1, 4)
    assert np.array_equal(some.frames, whole.frames[[1, 4]])
    assert (some.total, some.fps) == (whole.total, whole.fps)


@pytest.mark.parametrize(("container", "codec"), [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("webm", "libvpx")])
def test_frames_are_counted_where_the_header_does_not_say(container: str, codec: str) -> None:
    video = read_video(encode(6, container, codec), everything)
    assert (video.total, video.fps, len(video.frames)) == (6, 8.0, 6)
    levels = video.frames.mean(axis=(1, 2, 3))
    assert np.all(np.diff(levels) > 5), "in order, from the first on"


def test_files_cut_short() -> None:
    data = CLIP.read_bytes()
    for length in (100, len(data) // 2):
        with pytest.raises(BadMedia):
            read_video(data[:length], everything)


@pytest.mark.parametrize("data", [b"hello", b"\0" * 5000, MEDIA / "dot_1x1.png", MEDIA / "photo_300x200.jpg"])
def test_what_is_no_video(data: object) -> None:
    with pytest.raises(BadMedia, match="cannot be decoded"):
        read_video(data, everything)


@pytest.mark.parametrize("prefix", ["#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n", "ffconcat version 1.0\nfile "])
def test_playlists_cannot_reach_other_files(prefix: str) -> None:
    with pytest.raises(BadMedia, match="cannot be decoded"):
        read_video(f"{prefix}{CLIP}\n".encode(), everything)


def test_limits() -> None:
    with pytest.raises(BadMedia, match="bytes and at most 100 are allowed"):
        read_video(CLIP, everything, MediaLimits(video_bytes=100))
    with pytest.raises(BadMedia, match="at most 7 are allowed; send a shorter one"):
        read_video(CLIP, everything, MediaLimits(video_frames=7))
    with pytest.raises(BadMedia, match="frames of 96x64 would take"):
        read_video(CLIP, everything, MediaLimits(video_decoded_bytes=96 * 64 * 3 * 2))
