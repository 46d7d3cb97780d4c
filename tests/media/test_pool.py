"""Decoders in processes of their own: hangs, crashes and greed cost only the file that causes them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quaver.errors import BadMedia, Unavailable
from quaver.media import UPRIGHT, DecoderPool, MediaReader, read_audio, read_film, read_image, read_video

GOLDEN = Path(__file__).parents[1] / "golden"
FLASH, OMNI = GOLDEN / "clef-flash-tiny/media", GOLDEN / "clef-omni-tiny/media"
PICTURE = FLASH / "odd_37x91.png"
MIB = 2**20


def workers() -> set[int]:
    """The decoders' processes that this one has started."""
    children = {
        int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    }
    return {pid for pid in children if b"quaver.media.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def large(side: int) -> bytes:
    file = BytesIO()
    Image.new("L", (side, side)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    with DecoderPool(processes=1, seconds=2) as pool:
        yield pool


@pytest.fixture
def fresh() -> Iterator[DecoderPool]:
    """A pool whose process has yet to start."""
    with DecoderPool(processes=1) as pool:
        yield pool


def every(total: int, _fps: float) -> range:
    return range(total)


def test_everything_is_decoded_as_in_this_process() -> None:
    with DecoderPool() as pool:
        reader = MediaReader(decode=pool)
        for file in sorted(FLASH.glob("*.[pjw]*g*")):
            assert reader.image(file, UPRIGHT).digest == read_image(file).digest
        for file in sorted(FLASH.glob("*.mp4")):
            here, there = read_video(file, every), reader.video(file, every)
            assert there.digest == here.digest
            assert (there.indices, there.total, there.fps) == (here.indices, here.total, here.fps)
        for file in sorted(OMNI.glob("*.mp4")):
            assert reader.film(file).digest == read_film(file).digest
        for name in ("clip.mp3", "clip.ogg", "clip_22k.flac", "stereo_44k.wav"):
            assert reader.audio(OMNI / name).digest == read_audio(OMNI / name).digest
        assert reader.image(PICTURE, UPRIGHT).pixels.flags.writeable


def test_processes_start_when_they_are_needed_and_end_with_the_pool() -> None:
    before = workers()
    pool = DecoderPool(processes=2)
    reader = MediaReader(decode=pool)
    assert workers() == before
    for _ in range(3):
        reader.image(PICTURE, UPRIGHT)
    assert len(workers() - before) == 1
    pool.close()
    assert workers() == before
    with pytest.raises(Unavailable, match="closed"):
        reader.image(PICTURE, UPRIGHT)


def test_a_file_that_takes_too_long() -> None:
    with DecoderPool(processes=1, seconds=0.05) as pool, pytest.raises(BadMedia, match=r"took more than 0\.05 seconds"):
        MediaReader(decode=pool).image(large(7_000), UPRIGHT)


def test_a_decoder_that_hangs_is_replaced(pool: DecoderPool) -> None:
    reader = MediaReader(decode=pool)
    reader.image(PICTURE, UPRIGHT)
    [hanging] = pool.idle
    os.kill(hanging, signal.SIGSTOP)
    with pytest.raises(BadMedia, match="took more than 2 seconds"):
        reader.image(PICTURE, UPRIGHT)
    assert not Path(f"/proc/{hanging}").exists()
    assert reader.image(PICTURE, UPRIGHT).digest == read_image(PICTURE).digest


def test_a_decoder_that_crashes_is_replaced(pool: DecoderPool) -> None:
    reader = MediaReader(decode=pool)
    reader.image(PICTURE, UPRIGHT)
    [crashing] = pool.idle
    os.kill(crashing, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(reader.image, PICTURE, UPRIGHT)
        while pool.idle:
            time.sleep(0.01)
        os.kill(crashing, signal.SIGSEGV)
        os.kill(crashing, signal.SIGCONT)
        with pytest.raises(BadMedia, match="broke its decoder down"):
            answer.result()
    assert reader.image(PICTURE, UPRIGHT).digest == read_image(PICTURE).digest


def test_a_decoder_that_died_idle_costs_nobody_anything(pool: DecoderPool) -> None:
    reader = MediaReader(decode=pool)
    reader.image(PICTURE, UPRIGHT)
    [idle] = pool.idle
    os.kill(idle, signal.SIGKILL)
    while Path(f"/proc/{idle}/stat").read_text().rsplit(")")[1].split()[0] != "Z":
        time.sleep(0.01)
    assert reader.image(PICTURE, UPRIGHT).digest == read_image(PICTURE).digest


def test_a_file_that_needs_too_much_memory() -> None:
    with DecoderPool(processes=1, memory=400 * MIB) as pool:
        reader = MediaReader(decode=pool)
        reader.image(PICTURE, UPRIGHT)
        started = pool.idle
        with pytest.raises(BadMedia, match="needs more memory"):
            reader.image(large(7_000), UPRIGHT)
        reader.image(PICTURE, UPRIGHT)
        assert pool.idle == started, "the process has survived its own limit"


def test_decoders_see_no_secrets_and_write_no_files(monkeypatch: pytest.MonkeyPatch, fresh: DecoderPool) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    MediaReader(decode=fresh).image(PICTURE, UPRIGHT)
    [worker] = fresh.idle
    assert b"hunter2" not in Path(f"/proc/{worker}/environ").read_bytes()
    limits = Path(f"/proc/{worker}/limits").read_text()
    assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max file size")] == [["0", "0"]]


def test_many_threads_share_it() -> None:
    pictures = [Image.fromarray(np.full((n + 1, 9, 3), n, np.uint8)) for n in range(40)]
    files = []
    for picture in pictures:
        files.append(BytesIO())
        picture.save(files[-1], "PNG")
    # More processes than are idle at a time, so that threads race for them.
    with DecoderPool(processes=4) as pool, ThreadPoolExecutor(8) as threads:
        reader = MediaReader(decode=pool)
        read = list(threads.map(lambda file: reader.image(file.getvalue(), UPRIGHT), files))
    assert [image.digest for image in read] == [read_image(picture).digest for picture in pictures]


def test_decoders_end_when_their_parent_is_killed() -> None:
    code = (
        "import os, sys\nfrom quaver.media import *\npool = DecoderPool(1)\n"
        f"MediaReader(decode=pool).image(open({str(PICTURE)!r}, 'rb').read(), UPRIGHT)\n"
        "print(pool.idle[0], flush=True)\nos._exit(1)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    stat = Path(f"/proc/{int(out)}")
    deadline = time.monotonic() + 30
    while stat.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not stat.exists()


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_a_process_that_does_not_start(program: str, monkeypatch: pytest.MonkeyPatch, fresh: DecoderPool) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(Unavailable, match="does not start"):
        MediaReader(decode=fresh).image(PICTURE, UPRIGHT)
    monkeypatch.undo()
    assert MediaReader(decode=fresh).image(PICTURE, UPRIGHT).digest == read_image(PICTURE).digest
