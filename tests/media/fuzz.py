"""Mutated files through the decoders' processes: every one ends in a decoded item or BadMedia.

A failure is shrunk by hypothesis before it is shown. ``scripts/fuzz-media`` runs it as long as it is told.
"""

from __future__ import annotations

import random
import struct
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hostile import CASES, Case
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from quaver.errors import BadMedia
from quaver.media import AS_STORED, UPRIGHT, DecoderPool, MediaLimits, MediaReader

MIB = 2**20
#: Small, so that most of the time goes into strange files and not into large ones.
LIMITS = MediaLimits(
    image_pixels=4_000_000,
    audio_seconds=20,
    video_pixels=1_000_000,
    video_frames=1_000,
    video_seconds=20,
    video_decoded_bytes=64 * MIB,
)
LARGEST_SEED = 100_000
ROUND = 100
#: Sizes and counts that programs forget to think of.
STRANGE = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
PNG = b"\x89PNG\r\n\x1a\n"

# What is refused already leads nowhere new.
SEEDS = [case for case in CASES if len(case.data) < LARGEST_SEED and not isinstance(case.outcome, str)]
places = st.floats(0, 1, exclude_max=True)
edits = st.one_of(
    st.tuples(st.just("flip"), places, st.integers(0, 7)),
    st.tuples(st.just("byte"), places, st.integers(0, 255)),
    st.tuples(st.sampled_from(["big", "little"]), places, st.sampled_from(STRANGE)),
    st.tuples(st.sampled_from(["delete", "repeat", "zero"]), places, st.integers(1, 4_096)),
    st.tuples(st.just("cut"), places, st.just(0)),
    st.tuples(st.just("splice"), places, st.integers(0, len(SEEDS) - 1)),
)


@dataclass
class Tally:
    """What became of the inputs, and the resident memory in bytes of both processes after every round."""

    outcomes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, int]] = field(default_factory=list)


def mutated(data: bytes, changes: list[tuple[str, float, int]], repaired: bool) -> bytes:
    for kind, place, value in changes:
        at = int(place * len(data))
        match kind:
            case "flip" if data:
                data = data[:at] + bytes([data[at] ^ 1 << value]) + data[at + 1 :]
            case "byte":
                data = data[:at] + bytes([value]) + data[at + 1 :]
            case "big" | "little":
                data = data[:at] + struct.pack(">I" if kind == "big" else "<I", value) + data[at + 4 :]
            case "delete":
                data = data[:at] + data[at + value :]
            case "repeat":
                data = data[: at + value] + data[at:]
            case "zero":
                data = data[:at] + bytes(min(value, len(data) - at)) + data[at + value :]
            case "cut":
                data = data[:at]
            case "splice":
                data = data[:at] + SEEDS[value].data[at:]
    return with_checksums(data) if repaired and data.startswith(PNG) else data


def with_checksums(data: bytes) -> bytes:
    """A PNG whose chunks pass their checks, so that the readers behind the checks are reached."""
    out, at = bytearray(data), len(PNG)
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            break
        out[end : end + 4] = zlib.crc32(data[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(out)


def read(reader: MediaReader, task: str, data: bytes) -> None:
    match task:
        case "image":
            reader.image(data, UPRIGHT)
            reader.image(data, AS_STORED)
        case "audio":
            reader.audio(data)
        case "film":
            reader.film(data)
        case "video":
            reader.video(data, lambda total, _: range(total))


def outcome(reader: MediaReader, task: str, data: bytes) -> str:
    try:
        read(reader, task, data)
    except BadMedia as error:
        for kind in ("broke its decoder down", "took more than"):
            if kind in str(error):
                return kind
        return "refused"
    return "decoded"


def fuzz(seconds: float, start: int, unusual: Path | None = None) -> Tally:
    """Rounds of mutated files until ``seconds`` are over; files that broke or stalled a decoder go to ``unusual``."""
    tally, until = Tally(), time.monotonic() + seconds
    with DecoderPool(processes=1, seconds=10, memory=1024 * MIB) as pool:
        reader = MediaReader(LIMITS, decode=pool)

        @given(st.sampled_from(SEEDS), st.lists(edits, min_size=1, max_size=6), st.booleans())
        @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def law(case: Case, changes: list[tuple[str, float, int]], repaired: bool) -> None:
            if time.monotonic() > until:
                return
            data = mutated(case.data, changes, repaired)
            result = outcome(reader, case.task, data)
            tally.outcomes[result] += 1
            if unusual is not None and result not in ("decoded", "refused"):
                (unusual / f"{case.task}-{zlib.crc32(data):08x}").write_bytes(data)

        while time.monotonic() < until:
            seed(start + len(tally.memory))(law)()
            tally.memory.append((resident("self"), resident(str(pool.idle[0])) if pool.idle else 0))
    return tally


def resident(process: str) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    unusual = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if unusual:
        unusual.mkdir(parents=True, exist_ok=True)
    start = random.randrange(2**32)
    print(f"seed {start}, {len(SEEDS)} files to mutate, {seconds:g} seconds", flush=True)
    tally = fuzz(seconds, start, unusual)
    print(f"{tally.outcomes.total()} inputs: {dict(tally.outcomes)}")
    for name, sizes in zip(("this process", "the decoder"), zip(*tally.memory, strict=True), strict=True):
        marks = [sizes[len(sizes) * quarter // 4] for quarter in range(4)] + [sizes[-1]]
        print(f"resident memory of {name}, MiB, over time: {[round(mark / MIB) for mark in marks]}")


if __name__ == "__main__":
    main()
