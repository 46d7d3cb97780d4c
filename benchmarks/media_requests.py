"""The requests of ``media_load.py``: good ones by every slot and place, and hostile ones of every kind."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

FOLDER = Path(__file__).parent.parent / "tests/golden/clef-flash-tiny/media"
PICTURES = ("photo_300x200.jpg", "photo_300x200.webp", "odd_37x91.png", "exif6_160x96.jpg", "cmyk_208x304.jpg")
CLIP = "clip8_96x64.mp4"
TEXT = "The parcel came late and the box was torn."
QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "what": {"type": "choice", "instructions": "What is it?", "criteria": {"z": "a parcel", "a": None}},
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and the statuses that are right for it; with ``patience`` its caller leaves after so many seconds."""

    kind: str
    body: dict[str, Any]
    statuses: tuple[int, ...] = (200,)
    files: tuple[tuple[str, bytes], ...] = ()
    patience: float | None = None

    def send(self, client: httpx.Client) -> httpx.Response:
        body = {"state": TEXT, "questions": QUESTIONS, **self.body}
        timeout = client.timeout if self.patience is None else self.patience
        if not self.files:
            return client.post("/v1/systemone", json=body, timeout=timeout)
        form = {"request": (None, json.dumps(body), "application/json")}
        return client.post("/v1/systemone", files={**form, **{n: (n, d) for n, d in self.files}}, timeout=timeout)


def good() -> list[Ask]:
    """Every picture by every slot and place, a clip, and text alone."""
    asks = [Ask("text alone", {})]
    for name in PICTURES:
        data = (FOLDER / name).read_bytes()
        encoded = base64.b64encode(data).decode()
        url, marked = f"data:image/x;base64,{encoded}", {"state": f"{TEXT} <photo>"}
        asks += [
            Ask("data URL", {"images": [url]}),
            Ask("base64", {"images": [encoded]}),
            Ask("file in the folder", {"images": [name]}),
            Ask("part of the state", {"state": [{"type": "text", "text": TEXT}, _part(url)]}),
            Ask("asset", {**marked, "assets": {"<photo>": {"type": "image", "data_base64": encoded}}}),
            Ask("form part", {**marked, "assets": {"<photo>": {"type": "image", "part": "p"}}}, files=(("p", data),)),
        ]
    return [*asks, Ask("clip", {"videos": [CLIP]}), Ask("two pictures", {"images": list(PICTURES[:2])})]


def hostile() -> list[Ask]:
    """What a caller may try; each kind with the statuses that refuse it."""
    picture, clip = (FOLDER / PICTURES[0]).read_bytes(), (FOLDER / CLIP).read_bytes()
    images = {
        "broken base64": "iVBORw0KGgo=====",
        "picture cut short": _encoded(picture[: len(picture) // 2]),
        "bomb of 60,000 x 60,000 pixels": _encoded(_bomb()),
        "page as a picture": _encoded(b"<!doctype html><script>alert(1)</script>"),
        "metadata address": "http://169.254.169.254/latest/meta-data/",
        "loopback as a number": "http://2130706433/",
        "address of another host": "https://example.org/a.png",
        "name that does not exist": "http://media.invalid/a.png",
        "file outside by dots": "../config.json",
        "file outside by URL": "file:///etc/passwd",
        "device": "file:///dev/zero",
    }
    asks = [Ask(f"hostile: {kind}", {"images": [source]}, (400,)) for kind, source in images.items()]
    good_image = {"images": [PICTURES[0]]}
    return [
        *asks,
        Ask("hostile: clip cut short", {"videos": [_encoded(clip[: len(clip) // 2])]}, (400,)),
        Ask("hostile: sound for a deaf model", {"audio": ["UklGRg=="]}, (400,)),
        Ask("hostile: 200 pictures", {"images": [PICTURES[2]] * 200}, (400,)),
        Ask("hostile: part nobody names", {}, (400,), files=(("stray", picture),)),
        Ask("hostile: good picture, bad schema", {**good_image, "questions": {"q": {"type": "what"}}}, (422,)),
        Ask("hostile: caller leaves", {**good_image, "state": TEXT * 50}, (200, 499), patience=0.02),
    ]


def _part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bomb() -> bytes:
    """A PNG of a few hundred bytes that says it has 3.6 billion pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
