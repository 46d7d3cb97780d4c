"""Files below the folder of a policy, and nothing else of the machine."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path

import pytest

from quaver.errors import BadMedia, BadRequest
from quaver.media.policy import MediaPolicy
from quaver.media.source import read_bytes

PICTURE = b"picture"
SECRET = b"secret"


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """A folder with files and links, beside a file that must stay unread."""
    (tmp_path / "secret.png").write_bytes(SECRET)
    folder = tmp_path / "media"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "sub/b.png", "with space.png", "100%.png", "AAAA", ".hidden"):
        (folder / name).write_bytes(PICTURE)
    for name, target in {
        "link.png": "a.png",
        "up.png": "sub/../a.png",
        "folder": "sub",
        "out.png": "../secret.png",
        "absolute.png": str(tmp_path / "secret.png"),
        "outside": "..",
        "zero.png": "/dev/zero",
        "loop.png": "loop.png",
        "gone.png": "nothing.png",
    }.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.png")
    return folder


def read(folder: Path, name: str, most: int = 100) -> bytes:
    return read_bytes(name.replace("{folder}", str(folder)), most, MediaPolicy(folder=folder))


@pytest.mark.parametrize(
    "name",
    [
        "a.png",
        "./a.png",
        "sub/b.png",
        "sub/../a.png",
        "{folder}/a.png",
        "with space.png",
        ".hidden",
        "link.png",
        "up.png",
        "folder/b.png",
        "file:a.png",
        "file:AAAA",
        "file://{folder}/a.png",
        "file://localhost{folder}/sub/b.png",
        "FILE:with%20space.png",
        "file:100%25.png",
        "file:sub%2Fb.png",
    ],
)
def test_files_inside(media: Path, name: str) -> None:
    assert read(media, name) == PICTURE


@pytest.mark.parametrize(
    "name",
    [
        "../secret.png",
        "sub/../../secret.png",
        "{folder}/../secret.png",
        "file:../secret.png",
        "file:%2e%2e/secret.png",
        "file:..%2fsecret.png",
        "file://{folder}/../secret.png",
        "file:///etc/passwd",
        "/etc/passwd.",
        "out.png",
        "absolute.png",
        "outside/secret.png",
        "zero.png",
        "loop.png",
        "gone.png",
        "pipe.png",
        "sub/.",
        ".",
        "file:",
        "file:/",
        "none.png",
        "a.png/x.png",
        "a.png\0.jpg",
        "file:a.png%00.jpg",
        "file:%ff.png",
        "file://elsewhere/a.png",
        "file://elsewhere{folder}/a.png",
        "~/a.png",
        "x" * 300 + ".png",
        "x/" * 2000 + ".png",
    ],
)
def test_everything_else(media: Path, name: str) -> None:
    """One wording, whether there is such a file or not."""
    with pytest.raises(BadMedia, match="is not a file in the folder that media are read from"):
        read(media, name)


def test_text_that_could_be_base64_is_base64(media: Path) -> None:
    assert read(media, "AAAA") == base64.b64decode("AAAA")
    with pytest.raises(BadMedia, match="it is not base64 either"):
        read(media, "AAAA.")
    with pytest.raises(BadMedia, match="not valid base64"):
        read(media, "AAAA." * 1000, most=10_000)


def test_size(media: Path) -> None:
    assert read(media, "a.png", most=len(PICTURE)) == PICTURE
    with pytest.raises(BadMedia, match="at most 6 are allowed"):
        read(media, "a.png", most=6)


def test_a_folder_that_is_a_link_counts_as_what_it_leads_to(media: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(media)
    assert read(tmp_path / "alias", "a.png") == PICTURE
    assert read(tmp_path / "alias", f"file://{media}/a.png") == PICTURE


def test_a_link_made_between_check_and_opening_gains_nothing(media: Path, tmp_path: Path) -> None:
    """A folder of the path turns into a link to the outside and back, as fast as it can, while it is read."""
    inside, away = media / "flip", media / "away"
    inside.mkdir()
    (inside / "secret.png").write_bytes(PICTURE)
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            inside.rename(away)
            inside.symlink_to(tmp_path)
            inside.unlink()
            away.rename(inside)

    flipping = threading.Thread(target=flip)
    flipping.start()
    got = []
    for _ in range(2000):
        try:
            got.append(read(media, "flip/secret.png"))
        except BadMedia:
            got.append(b"")
    stop.set()
    flipping.join()
    assert set(got) <= {PICTURE, b""}


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PICTURE)
    for name in (tmp_path / "a.png", tmp_path / "none"):
        with pytest.raises(BadRequest, match="is not a folder"):
            MediaPolicy(folder=name)
