"""Films: read as Clef-omni and as Clef-flash do, and files whose headers lie."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

from hostile.case import Case, cuts
from hostile.pixels import encoded, photo
from hostile.recording import boxes, fast_start, film, patched, sound, tone, wav

SIZE = (48, 64)
NO_VIDEO = "no video stream"
BROKEN = "cannot be decoded"
EMPTY = f"{BROKEN}|{NO_VIDEO}|has no frames"
TABLES = "moov/trak/mdia/minf/stbl"


def cases() -> Iterator[Case]:
    yield from chain(_both(), _films(), _videos(), _lies(), _broken(), _others())


def twice(name: str, data: bytes, film_frames: int | str, video_frames: int | str) -> Iterator[Case]:
    """A file of the usual size by both readers: so many frames each, or words of the refusal."""
    for task, frames in (("film", film_frames), ("video", video_frames)):
        yield Case(f"{name}-{task}", task, data, frames if isinstance(frames, str) else (frames, *SIZE))


def _both() -> Iterator[Case]:
    """Two seconds at four frames a second in every container."""
    for name, data in {
        "mp4": film(),
        "mp4-heard": film(heard=tone(2)),
        "mp4-mpeg4": film(codec="mpeg4"),
        "mp4-fast-start": fast_start(film()),
        "mov": film("mov"),
        "mkv": film("matroska"),
        "webm": film("webm", "libvpx"),
        "avi": film("avi", "mpeg4"),
        "avi-mjpeg": film("avi", "mjpeg"),
        "gif": film("gif", "gif"),
    }.items():
        yield from twice(name, data, 4, 8)
    # These start a moment late, so that a film of them has a fifth half second, and then an even count.
    yield from twice("mp4-fragments", film(options={"movflags": "frag_keyframe+empty_moov"}), 6, 8)
    yield from twice("flv", film("flv"), 6, 8)
    yield from twice("mpegts", film("mpegts"), 6, 8)
    yield from twice("one-frame", film(frames=1), 2, 1)
    yield from twice("odd", film(frames=9), 6, 9)


def _films() -> Iterator[Case]:
    yield Case("film-large", "film", film(size=(800, 450), frames=2), (2, 384, 682))
    yield Case("film-odd-sides", "film", film(codec="png", container="mov", size=(63, 47), frames=2), (2, 48, 64))
    yield Case("film-slow", "film", film(frames=4, rate=1), (4, *SIZE))
    yield Case("film-late", "film", film(first=12), (8, *SIZE))
    yield Case("film-jump", "film", film(times=[0, 1, 2, 3, 40, 41, 42, 43]), (6, *SIZE))
    yield Case("film-too-long", "film", film(frames=23, rate=1), "longer than the 20 seconds")
    yield Case("film-flat", "film", film(size=(512, 2), frames=2), (2, 2, 512))


def _videos() -> Iterator[Case]:
    yield Case("video-too-long", "video", film(frames=23, rate=1), "longer than the 20 seconds")
    yield Case("video-odd-sides", "video", film(codec="png", container="mov", size=(63, 47), frames=2), (2, 47, 63))
    yield Case(
        "video-too-many-frames", "video", film("gif", "gif", frames=1_001, rate=100, size=(8, 8)), "at most 1000"
    )


def _lies() -> Iterator[Case]:
    """MP4 tables that say what is not so."""
    good = film()
    stts, stsz, stco = (boxes(good, f"{TABLES}/{name}") for name in ("stts", "stsz", "stco"))
    header = boxes(good, "moov/mvhd")
    entry = boxes(good, f"{TABLES}/stsd") + 16
    yield from twice("no-frames-in-times", patched(good, stts + 4, 0), EMPTY + "|frame", EMPTY + "|frame")
    yield from twice("more-frames-in-times", patched(good, stts + 8, 10**6), 4, "and at most|longer than")
    yield from twice("endless-frames", patched(good, stts + 12, 2**31 - 1), 2, "longer than")
    yield from twice("zero-long-frames", patched(good, stts + 12, 0), 2, 8)
    yield from twice("more-sizes", patched(good, stsz + 8, 2**31 - 1), EMPTY, EMPTY)
    yield from twice("more-sizes-than-frames", patched(good, stsz + 8, 900), "has no frames", "holds fewer")
    yield from twice("fewer-sizes", patched(good, stsz + 8, 3), 4, "holds fewer")
    yield from twice("large-sizes", patched(good, stsz + 12, 2**31 - 1), "has no frames", "holds fewer")
    yield from twice("one-size-for-all", patched(good, stsz + 4, 50), BROKEN, BROKEN)
    yield from twice("elsewhere", patched(good, stco + 8, 2**31 - 1), "has no frames", "holds fewer")
    yield from twice("in-the-header", patched(good, stco + 8, 4), BROKEN, BROKEN)
    yield from twice("long-by-header", patched(good, header + 16, 2**32 - 1), 4, 8)
    yield from twice("no-time-scale", patched(good, header + 12, 0), 4, 8)
    yield from twice("large-by-header", patched(good, entry + 24, 0x7FFF7FFF), 4, 8)
    yield from twice("zero-by-header", patched(good, entry + 24, 0), 4, 8)


def _broken() -> Iterator[Case]:
    good = film()
    for task in ("film", "video"):
        yield from cuts(f"mp4-{task}", task, good, EMPTY)
    fast = fast_start(film())
    for task in ("film", "video"):
        yield from cuts(f"fast-start-{task}", task, fast, f"{EMPTY}|holds fewer", (0.2, 0.4))
    yield from twice(
        "two-sizes", film("mpegts") + film("mpegts", size=(96, 64), first=12), "changes its size", "changes its size"
    )
    yield from twice("type-only", good[: struct.unpack(">I", good[:4])[0]], EMPTY, EMPTY)
    yield from twice("deep-boxes", _deep(2_000), EMPTY, EMPTY)
    yield from twice("box-of-no-size", b"\0\0\0\0ftypisom" + good[16:], EMPTY, EMPTY)
    yield from twice("data-zeroed", good.replace(good[48:700], bytes(652)), BROKEN, BROKEN)


def _deep(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        data = struct.pack(">I", len(data) + 8) + b"moov" + data
    return b"\0\0\0\x10ftypisom\0\0\0\0" + data


def _others() -> Iterator[Case]:
    for name, data in {
        "sound-only": sound("mp4", "aac", tone()),
        "wav": wav(tone()),
    }.items():
        yield from twice(name, data, NO_VIDEO, NO_VIDEO)
    for name, data in {
        "text": b"hello hello",
        "picture": encoded(photo(), "PNG"),
        "jpeg": encoded(photo(), "JPEG"),
        "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n",
        "concat": b"ffconcat version 1.0\nfile /etc/passwd\n",
        "dash": b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'></MPD>",
        "zeros": bytes(65_536),
    }.items():
        yield from twice(f"no-film-{name}", data, EMPTY, EMPTY)
