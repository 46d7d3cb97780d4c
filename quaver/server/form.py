"""The parts of a ``multipart/form-data`` body, as the bytes that they are.

Frameworks read a part without a file name as text, in whatever charset fits. Here all parts are bytes: the JSON
is then held to UTF-8 like any other body, and an image whose sender gave no file name, which RFC 7578 (section
4.2) only recommends, stays as it was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import HTTPException
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

#: The JSON and as many files as a body may have assets.
MAX_PARTS = 129


def read_form(raw: bytes, content_type: str) -> dict[str, bytes]:
    """The contents of all parts by name. 400 for what is no whole form, and for two parts of one name."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise HTTPException(400, "the form cannot be read: its content-type names no boundary")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks)
        parser.write(raw)
        parser.finalize()
    except FormParserError as error:
        raise HTTPException(400, f"the form cannot be read: {error}") from None
    # The parser takes a form that breaks off for one of which more will come.
    if not parts.ended:
        raise HTTPException(400, "the form cannot be read: it ends before its last boundary")
    return parts.contents


class _Parts:
    """What the parser's events add up to; a header or a content may come in several of them."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.ended = False
        self._header, self._value, self._disposition, self._content = (bytearray() for _ in range(4))

    @property
    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_part_data": lambda data, start, end: self._content.extend(data[start:end]),
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition[:] = self._value
        self._header.clear()
        self._value.clear()

    def _end_part(self) -> None:
        name = _name(bytes(self._disposition))
        if name in self.contents:
            raise HTTPException(400, f"the form has two parts named {name!r}")
        if len(self.contents) == MAX_PARTS:
            raise HTTPException(400, f"the form has more than {MAX_PARTS} parts")
        self.contents[name] = bytes(self._content)
        self._disposition.clear()
        self._content.clear()

    def _end(self) -> None:
        self.ended = True


def _name(disposition: bytes) -> str:
    try:
        return parse_options_header(disposition)[1][b"name"].decode("utf-8")
    except KeyError:
        raise HTTPException(400, "the form has a part without a name in its content-disposition") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the form has a part whose name is not UTF-8") from None
