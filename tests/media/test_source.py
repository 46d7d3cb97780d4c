"""Encoded media from text, bytes and files."""

import base64
from pathlib import Path

import pytest

from quaver.errors import BadMedia
from quaver.media.source import read_bytes

DATA = bytes(range(256))
TEXT = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "source",
    [
        TEXT,
        TEXT[:100] + "\n" + TEXT[100:] + "\n",
        f"data:image/png;base64,{TEXT}",
        f"DATA:image/png;charset=utf-8;BASE64,{TEXT}",
        f"data:;base64,{TEXT}",
        DATA,
        bytearray(DATA),
        memoryview(DATA),
    ],
)
def test_all_forms_give_the_same_bytes(source: object) -> None:
    assert read_bytes(source, 256) == DATA


def test_a_path_is_read_and_text_never_is(tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(DATA)
    assert read_bytes(file, 256) == DATA
    for name in (str(file), "/etc/hostname", "../../secret.png"):
        with pytest.raises(BadMedia, match=r"(not valid base64|file is given as a Path)"):
            read_bytes(name, 256)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("https://host/a.png", r"not fetched by this server \(--allow-media-hosts .*send the file itself"),
        ("HTTP://host", "not fetched by this server"),
        ("file:///etc/passwd", r"not read by this server \(--allow-media-dir .*send the file itself"),
        ("FILE:a.png", "not read by this server"),
        ("ftp://host/a.png", "ftp: addresses are not read; send the file itself"),
        ("data:text/plain,hello", "the data URL is not base64"),
    ],
)
def test_places_are_not_visited_unless_that_is_allowed(source: str, message: str) -> None:
    with pytest.raises(BadMedia, match=message):
        read_bytes(source, 256)


def test_size_limits(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(DATA)
    for source in (TEXT, f"data:image/png;base64,{TEXT}", DATA, file):
        with pytest.raises(BadMedia, match="at most 255 are allowed"):
            read_bytes(source, 255)


@pytest.mark.parametrize("source", ["", b"", "data:image/png;base64,"])
def test_empty_media(source: object) -> None:
    with pytest.raises(BadMedia, match="empty"):
        read_bytes(source, 256)


@pytest.mark.parametrize("source", [None, 3, ["a"], {"image": TEXT}])
def test_other_objects(source: object) -> None:
    with pytest.raises(BadMedia, match="must be a data URL"):
        read_bytes(source, 256)


@pytest.mark.parametrize("source", ["abc", "a===", "%%%%", "naïve", "\ud800"])
def test_text_that_is_not_base64(source: str) -> None:
    with pytest.raises(BadMedia, match="not valid base64"):
        read_bytes(source, 256)


def test_a_folder_or_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.png"):
        with pytest.raises(BadMedia, match="cannot be read"):
            read_bytes(path, 10**9)
