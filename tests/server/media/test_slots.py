"""The same medium has the same answer by every slot and from every place."""

from __future__ import annotations

from typing import Any

import httpx
from asking import (
    CHOICE,
    CLIP,
    FILM,
    FOLDER,
    NOUL,
    PICTURE,
    QUESTIONS,
    SOUND,
    TEXT,
    data_url,
    decisions,
    message,
    part,
    raw,
    systemone,
    text,
)

import quaver


def test_a_picture_has_one_answer_by_every_slot_and_from_every_place(flash: httpx.Client, host: str) -> None:
    places = [data_url(PICTURE), raw(PICTURE), f"http://{host}/{PICTURE}", f"file:{PICTURE}", PICTURE]
    places.append(f"file://{FOLDER.resolve()}/{PICTURE}")
    expected = systemone(flash, {"images": [data_url(PICTURE)]})
    assert expected != systemone(flash, {})
    for place in places:
        assert systemone(flash, {"images": [place]}) == expected
        for kind, held in (("image_url", {"url": place}), ("image_url", place), ("input_image", place)):
            assert systemone(flash, {"state": [text(TEXT), {"type": kind, "image_url": held}]}) == expected
        assert decisions(flash, {"images": [place]}) == expected
        assert decisions(flash, message({"type": "input_image", "image_url": place})) == expected
    assert systemone(flash, {"files": [data_url(PICTURE)]}) == expected
    assert decisions(flash, {"files": [data_url(PICTURE)]}) == expected


def test_a_picture_behind_a_marker_has_one_answer_by_every_slot(flash: httpx.Client) -> None:
    """Where text stands for the picture, the answer is that to the same text with the picture beside it."""
    assets = {"<photo>": {"type": "image", "format": "jpeg", "data_base64": raw(PICTURE)}}
    attached, files = {"<photo>": {"type": "image", "part": "photo"}}, {"photo": (FOLDER / PICTURE).read_bytes()}
    images = [data_url(PICTURE)]
    expected = systemone(flash, {"state": f"{TEXT} [image 1]", "images": images})
    assert systemone(flash, {"state": f"{TEXT} <photo>", "assets": assets}) == expected
    assert systemone(flash, {"state": f"{TEXT} <photo>", "assets": attached}, files) == expected

    def asking(shown: str) -> dict[str, Any]:
        criteria = {"z": f"a parcel as on {shown}", "a": None}
        return {"late": NOUL, "what": {**CHOICE, "instructions": f"What is on {shown}?", "criteria": criteria}}

    expected = systemone(flash, {"questions": asking("[image 1]"), "images": images})
    assert systemone(flash, {"questions": asking("<photo>"), "assets": assets}) == expected

    said = {"role": "user", "content": [text(TEXT), part(images[0])]}
    shown = {"role": "user", "content": [text(TEXT), text("[image 1]")]}
    for state, same in (([shown], [said]), ({"log": {"turns": [shown]}}, {"log": {"turns": [said]}})):
        assert systemone(flash, {"state": same}) == systemone(flash, {"state": state, "images": images})


def test_a_clip_has_one_answer_by_every_slot_and_from_every_place(flash: httpx.Client, host: str) -> None:
    expected = systemone(flash, {"videos": [data_url(CLIP)]})
    assert expected not in (systemone(flash, {}), systemone(flash, {"images": [data_url(PICTURE)]}))
    for place in (data_url(CLIP), raw(CLIP), f"http://{host}/{CLIP}", CLIP):
        assert systemone(flash, {"videos": [place]}) == expected
        for kind in ("video_url", "input_video"):
            assert systemone(flash, {"state": [text(TEXT), {"type": kind, "video_url": place}]}) == expected
        assert decisions(flash, {"videos": [place]}) == expected
        assert decisions(flash, message({"type": "input_video", "video_url": place})) == expected
    assert systemone(flash, {"files": [data_url(CLIP)]}) == expected


def test_other_paths_and_the_client_give_the_same_answer(flash: httpx.Client) -> None:
    expected = systemone(flash, {"images": [PICTURE]})
    body = {"state": TEXT, "questions": QUESTIONS, "images": [PICTURE]}
    cloudflare = flash.post("/accounts/a/ai/run/jev-latest", json=body).json()
    assert cloudflare["result"]["answers"]["late"]["noul"] == expected["late"]
    with quaver.Client(str(flash.base_url)) as client:
        choice = quaver.Choice("What is it?", {"z": "a parcel", "a": None})
        for item in (FOLDER / PICTURE, (FOLDER / PICTURE).read_bytes(), data_url(PICTURE), PICTURE):
            answers = client.decide(TEXT, {"late": quaver.Noul("Is it late?"), "what": choice}, images=[item])
            assert answers["late"].probability == expected["late"]
    states = [TEXT, [text(TEXT), part(PICTURE)], [text(TEXT), part("none.png")]]
    plain, seen, missing = flash.post("/v1/systemone/batch", json={"states": states, "questions": QUESTIONS}).json()[
        "results"
    ]
    assert plain["answers"]["late"]["noul"] == systemone(flash, {})["late"]
    assert seen["answers"]["late"]["noul"] == expected["late"]
    assert missing["status"] == 400 and missing["error"]["param"] == "state.1"


def test_a_sound_has_one_answer_by_every_slot_and_from_every_place(omni: httpx.Client) -> None:
    expected = systemone(omni, {"audio": [data_url(SOUND)]})
    assert expected != systemone(omni, {})
    for place in (data_url(SOUND), raw(SOUND), SOUND.name, f"file:{SOUND.name}"):
        heard = {"type": "input_audio", "input_audio": {"data": place, "format": "wav"}}
        assert systemone(omni, {"audio": [place]}) == expected
        for shown in (heard, {"type": "audio_url", "audio_url": {"url": place}}):
            assert systemone(omni, {"state": [text(TEXT), shown]}) == expected
        assert decisions(omni, {"audio": [place]}) == expected
        assert decisions(omni, message(heard)) == expected
    assert systemone(omni, {"files": [data_url(SOUND)]}) == expected


def test_all_kinds_together_by_slots_mixed(omni: httpx.Client) -> None:
    """Each kind keeps its own order, so that it does not matter how the kinds are mixed among the slots."""
    picture, sound, film = data_url(PICTURE), data_url(SOUND), data_url(FILM)
    expected = systemone(omni, {"images": [picture], "audio": [sound], "videos": [film]})
    assert systemone(omni, {"files": [film, sound, picture]}) == expected
    heard = {"type": "input_audio", "input_audio": {"data": sound}}
    assert systemone(omni, {"state": [heard, text(TEXT), part(picture)], "videos": [film]}) == expected
    watched = {"type": "input_video", "video_url": film}
    assert decisions(omni, {**message(watched, heard), "files": [picture]}) == expected
