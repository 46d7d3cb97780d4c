"""Where a body may carry media: lists beside the text, parts of the state, assets behind placeholders.

Every slot ends in one place: the tuples of a ``Request``. Each kind is counted in the order lists, files, parts,
assets. What a text leads to, and whether it may, is for the media room to say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field, SkipValidation

from quaver.errors import BadMedia, BadRequest
from quaver.protocol.strict_json import Where, excerpt, place
from quaver.protocol.types import Attachments, Strict
from quaver.questions import Json, MediaSource

Kind = Literal["images", "audio", "videos"]
LISTS: tuple[Kind, ...] = ("images", "audio", "videos")
_TYPES: Mapping[str, Kind] = {"data:image/": "images", "data:audio/": "audio", "data:video/": "videos"}

#: Types of content parts that hold a medium, and the field that holds it.
PARTS: Mapping[str, tuple[Kind, str]] = {
    # Chat completions, so OpenRouter and vLLM, name the type by its field; OpenAI's Responses say input_ before it.
    "image_url": ("images", "image_url"),
    "input_image": ("images", "image_url"),
    "audio_url": ("audio", "audio_url"),
    "input_audio": ("audio", "input_audio"),
    "video_url": ("videos", "video_url"),
    "input_video": ("videos", "video_url"),
}
TEXT_PARTS = ("text", "input_text")


Items = Annotated[
    list[SkipValidation[str]] | None,
    Field(description="Data URLs, base64, or addresses and files as far as the server reads them."),
]


class MediaLists(BaseModel):
    """Media beside the text of a body, in either dialect."""

    images: Items = None
    audio: Items = None
    videos: Items = None
    files: list[SkipValidation[str]] | None = Field(None, description="Data URLs of images, audio or videos.")

    def media(self, *, local: bool = False) -> Media:
        """All items, in order; ``local`` as in ``systemone.parse``."""
        media = Media()
        for kind in LISTS:
            for index, item in enumerate(getattr(self, kind) or ()):
                media.add(kind, _listed(item, (kind, index), local), (kind, index))
        for index, item in enumerate(self.files or ()):
            media.add(*_file(item, ("files", index)), ("files", index))
        return media


class Asset(Strict):
    """An image whose placeholder stands in the text: inline, or a part of a multipart body."""

    type: Literal["image"]
    # TypeSafe asks for it. It is checked and not believed: what decodes the file looks at the file.
    format: Literal["png", "jpg", "jpeg"] | None = None
    data_base64: str | None = None
    part: str | None = Field(None, description="Name of the multipart part that holds the file.")


@dataclass(slots=True)
class Media:
    """Media collected from a body, in order, and where in it each of them stood."""

    images: list[MediaSource] = field(default_factory=list)
    audio: list[MediaSource] = field(default_factory=list)
    videos: list[MediaSource] = field(default_factory=list)
    places: dict[Where, Where] = field(default_factory=dict)

    def add(self, kind: Kind, item: MediaSource, where: Where) -> str:
        """Append ``item``, found at ``where``; the marker that stands for it in text."""
        slot: list[MediaSource] = getattr(self, kind)
        self.places[kind, len(slot)] = where
        slot.append(item)
        return f"[{kind.removesuffix('s')} {len(slot)}]"

    @property
    def fields(self) -> dict[str, Any]:
        """As the arguments of a ``Request``."""
        return {**{kind: tuple(getattr(self, kind)) for kind in LISTS}, "media_places": self.places}

    def copy(self) -> Media:
        """The same media, to which more can be added."""
        return Media(list(self.images), list(self.audio), list(self.videos), dict(self.places))


def local_media(source: MediaSource) -> MediaSource:
    """``source``, or its path when it is text that names an existing file.

    Only for callers in this process: a request from elsewhere must never name a file of this machine.
    """
    # Of text that cannot be a path, as too long a name cannot, isfile says only that it is none.
    named = isinstance(source, str) and os.path.isfile(source)
    return Path(str(source)) if named else source


def lift_parts(state: Json, media: Media) -> Json:
    """``state`` without the media parts in it.

    A part, or a list of parts, becomes the text of its text parts, one a line. Anywhere deeper, as in a list of
    messages, a marker such as ``[image 1]`` stays where the part was. A state without media parts is data and
    stays as it is.
    """
    if _is_part(state):
        media.add(*_part_source(state, ("state",)), ("state",))
        return ""
    # The form in which OpenRouter's documentation shows images: no data, but a text with pictures.
    if isinstance(state, list) and any(_is_part(item) for item in state):
        return _parts_to_text(state, media, ("state",))
    return mark_parts(state, media, ("state",))


def mark_parts(value: Json, media: Media, where: Where) -> Json:
    """``value`` with every media part in it, at any depth, turned into a text part that holds its marker."""
    if _is_part(value):
        return {"type": "text", "text": media.add(*_part_source(value, where), where)}
    # Containers alone are looked into, because a state may hold millions of numbers, and one without parts is not
    # copied, because it may be all of a body of 32 MiB.
    if isinstance(value, dict):
        marked = _marked(value.items(), media, where)
        return {**value, **marked} if marked else value
    if isinstance(value, list):
        marked = _marked(enumerate(value), media, where)
        return [marked.get(index, item) for index, item in enumerate(value)] if marked else value
    return value


def _marked(members: Iterable[tuple[Any, Json]], media: Media, where: Where) -> dict[Any, Json]:
    """Those of ``members`` that have media parts in them, marked, by their step."""
    return {
        step: marked
        for step, item in members
        if isinstance(item, (dict, list)) and (marked := mark_parts(item, media, (*where, step))) is not item
    }


def refuse_parts(value: Json, where: Where) -> None:
    """BadMedia when a question's text holds a media part: it would be read as the JSON that it is written in."""
    found = Media()
    mark_parts(value, found, where)
    if found.places:
        here = next(iter(found.places.values()))
        raise BadMedia(f"{place(here)}: media parts stand in the state; in a question write an asset's name", here)


def claim_assets(
    assets: Mapping[str, Asset], attachments: Attachments, media: Media, texts: Sequence[Json]
) -> Callable[[Json], Json]:
    """Put every asset into ``media``; returns the function that puts markers for placeholders into a text.

    BadMedia when an asset stands in none of ``texts``, or attachments and assets do not match one to one.
    """
    markers: dict[str, str] = {}
    for name, asset in assets.items():
        if not name or not any(_mentions(text, name) for text in texts):
            raise BadMedia(
                f"asset {excerpt(name)} is not referenced; write its name into the state, instructions or criteria",
                ("assets", name),
            )
        markers[name] = media.add("images", _asset_source(name, asset, attachments), ("assets", name))
    _check_attachments([asset.part for asset in assets.values() if asset.part], attachments)
    if not markers:
        return lambda text: text
    # A placeholder may begin like a longer one.
    longest_first = sorted(markers, key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(name) for name in longest_first))
    return lambda text: _map_text(text, lambda s: pattern.sub(lambda found: markers[found[0]], s))


def _listed(item: object, where: Where, local: bool) -> MediaSource:
    source = local_media(item) if local else item
    if local or isinstance(source, str):
        return source
    raise BadMedia(f"{place(where)} must be a data URL or base64 as text, got {excerpt(item)}", where)


def _file(item: object, where: Where) -> tuple[Kind, str]:
    kind = next((kind for start, kind in _TYPES.items() if str(item)[:20].lower().startswith(start)), None)
    if kind is None:
        raise BadMedia(f"{place(where)} must be a data URL of an image, audio or a video, got {excerpt(item)}", where)
    return kind, cast(str, item)


def _is_part(item: Json) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] in PARTS


def _parts_to_text(parts: list[Json], media: Media, where: Where) -> str:
    lines: list[str] = []
    for index, part in enumerate(parts):
        if _is_part(part):
            media.add(*_part_source(part, (*where, index)), (*where, index))
        elif isinstance(part, Mapping) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str):
            lines.append(part["text"])
        else:
            here = (*where, index)
            raise BadRequest(
                f'{place(here)}: beside media parts only {{"type": "text", "text": ...}} can stand, '
                f"got {excerpt(part)}",
                here,
            )
    return "\n".join(lines)


def _part_source(part: Mapping[str, Any], where: Where) -> tuple[Kind, str]:
    kind, key = PARTS[part["type"]]
    held = part.get(key)
    # Chat completions wrap the address in an object, Responses do not.
    if isinstance(held, Mapping):
        held = held.get("data") if key == "input_audio" else held.get("url")
    if not isinstance(held, str):
        raise BadMedia(f"{place(where)} has no data URL or base64 in {key}", (*where, key))
    return kind, held


def _asset_source(name: str, asset: Asset, attachments: Attachments) -> MediaSource:
    where: Where = ("assets", name)
    if asset.data_base64 is not None and asset.part is None:
        return asset.data_base64
    if asset.part is None or asset.data_base64 is not None:
        raise BadMedia(f"{place(where)} needs either data_base64 or part", where)
    if asset.part not in attachments:
        raise BadMedia(f"{place(where)} names part {excerpt(asset.part)}, which is not in the form", where)
    return attachments[asset.part]


def _check_attachments(claimed: Sequence[str], attachments: Attachments) -> None:
    for part in attachments:
        # TypeSafe's rule, and it catches the misspelt name of a part.
        if claimed.count(part) != 1:
            raise BadMedia(f"part {excerpt(part)} must be named by one asset, is named by {claimed.count(part)}")


def _mentions(value: Json, name: str) -> bool:
    if isinstance(value, str):
        return name in value
    if isinstance(value, Mapping):
        return any(_mentions(item, name) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_mentions(item, name) for item in value)


def _map_text(value: Json, change: Callable[[str], str]) -> Json:
    """``value`` with every text in it changed; the keys of objects stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_text(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_text(item, change) for item in value]
    return value
