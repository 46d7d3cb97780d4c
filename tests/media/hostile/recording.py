"""Encoders for sound and film: PyAV's, and RIFF by hand for what it does not write."""

from __future__ import annotations

import struct
from io import BytesIO

import av
import numpy as np


def tone(seconds: float = 1.0, rate: int = 16_000, channels: int = 1) -> np.ndarray:
    """[channels, samples] of int16."""
    time = np.arange(round(seconds * rate)) / rate
    return np.stack([12_000 * np.sin(2 * np.pi * 300 * (n + 1) * time) for n in range(channels)]).astype(np.int16)


def wav(
    body: bytes | np.ndarray,
    rate: int = 16_000,
    channels: int = 1,
    bits: int = 16,
    kind: int = 1,
    **lies: int,
) -> bytes:
    """RIFF; ``lies`` replace ``data_size``, ``riff_size`` or ``block``."""
    data = body if isinstance(body, bytes) else body.T.tobytes()
    block = lies.get("block", channels * bits // 8)
    header = struct.pack("<HHIIHH", kind, channels, rate, rate * block % 2**32, block, bits)
    chunks = (
        b"fmt " + struct.pack("<I", 16) + header + b"data" + struct.pack("<I", lies.get("data_size", len(data))) + data
    )
    return b"RIFF" + struct.pack("<I", lies.get("riff_size", len(chunks) + 4)) + b"WAVE" + chunks


def sound(container: str, codec: str, samples: np.ndarray, rate: int = 16_000, layout: str = "mono") -> bytes:
    """``samples`` [channels, samples] of int16, encoded."""
    file = BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        _encode_sound(output, stream, samples, rate, layout)
    return file.getvalue()


def film(
    container: str = "mp4",
    codec: str = "libx264",
    frames: int = 8,
    rate: int = 4,
    size: tuple[int, int] = (64, 48),
    heard: np.ndarray | None = None,
    first: int = 0,
    times: list[int] | None = None,
    options: dict[str, str] | None = None,
) -> bytes:
    """``size`` is (width, height); ``first`` and ``times`` are in frames; ``heard`` is sound at 16 kHz."""
    file = BytesIO()
    with av.open(file, "w", format=container, options=options or {}) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = {"gif": "rgb8", "mjpeg": "yuvj420p", "png": "rgb24"}.get(codec, "yuv420p")
        track = None if heard is None else output.add_stream("aac", rate=16_000, layout="mono")
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(_picture(number, size), format="rgb24").reformat(format=stream.pix_fmt)
            frame.pts = first + (times[number] if times else number)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
        if track is not None:
            _encode_sound(output, track, heard, 16_000, "mono")
    return file.getvalue()


def _picture(number: int, size: tuple[int, int]) -> np.ndarray:
    width, height = size
    slope = np.add.outer(np.arange(height), np.arange(width))[..., None] * np.array([1, 2, 3]) + number * 9
    return (slope % 256).astype(np.uint8)


def _encode_sound(output: object, stream: object, samples: np.ndarray, rate: int, layout: str) -> None:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.T).reshape(1, -1), format="s16", layout=layout)
    frame.sample_rate = rate
    resampler = av.AudioResampler(stream.format, stream.layout, stream.rate, stream.frame_size or None)
    for part in (*resampler.resample(frame), *resampler.resample(None)):
        output.mux(stream.encode(part))
    output.mux(stream.encode())


def boxes(data: bytes, path: str) -> int:
    """Where in an MP4 file the body of the box at ``path``, such as ``moov/trak/mdia``, begins."""
    start, end, place = 0, len(data), 0
    for name in path.split("/"):
        place = start
        while data[place + 4 : place + 8] != name.encode():
            place += struct.unpack(">I", data[place : place + 4])[0]
            assert place < end, f"no {name} in {path}"
        end = place + struct.unpack(">I", data[place : place + 4])[0]
        start = place + 8
    return place + 8


def patched(data: bytes, place: int, value: int, size: int = 4) -> bytes:
    return data[:place] + value.to_bytes(size, "big") + data[place + size :]


def fast_start(data: bytes) -> bytes:
    """An MP4 file of one track with its tables moved in front of the frames."""
    place = boxes(data, "moov") - 8
    moov = data[place : place + struct.unpack(">I", data[place : place + 4])[0]]
    table = boxes(moov, "moov/trak/mdia/minf/stbl/stco")
    for entry in range(struct.unpack(">I", moov[table + 4 : table + 8])[0]):
        at = table + 8 + 4 * entry
        moov = patched(moov, at, struct.unpack(">I", moov[at : at + 4])[0] + len(moov))
    start = boxes(data, "ftyp") - 8 + struct.unpack(">I", data[:4])[0]
    return data[:start] + moov + data[start:place]
