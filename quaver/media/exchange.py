"""Messages between a decoder's process and the one that uses it: a line of JSON and the bytes of arrays.

Not pickles: a decoder reads hostile files, and what it sends back must not be able to run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from socket import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.media.decoded import Audio, Film, Image, Video, VideoLength

KINDS: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in (Audio, Film, Image, Video, VideoLength)}
TYPES = ("uint8", "float32")
#: In front of every header; what it says is not believed beyond the longest.
_LENGTH_BYTES = 8
_LONGEST_HEADER = 16 * 1024 * 1024


def send(channel: socket, header: dict[str, Any], *buffers: Any) -> None:
    """Raises OSError when the other side is gone."""
    text = json.dumps(header).encode()
    channel.sendall(len(text).to_bytes(_LENGTH_BYTES, "big") + text)
    for buffer in buffers:
        channel.sendall(buffer)


def receive(channel: socket) -> dict[str, Any]:
    """Raises EOFError when the other side is gone."""
    length = int.from_bytes(receive_bytes(channel, _LENGTH_BYTES), "big")
    if length > _LONGEST_HEADER:
        raise EOFError(f"a header of {length} bytes is no header")
    header: dict[str, Any] = json.loads(receive_bytes(channel, length))
    return header


def receive_bytes(channel: socket, size: int) -> bytearray:
    data = bytearray(size)
    _fill(channel, memoryview(data))
    return data


def send_item(channel: socket, item: Any) -> None:
    """An instance of ``KINDS``; its arrays follow the header."""
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    header = {
        "kind": type(item).__name__,
        "values": {name: value for name, value in values.items() if name not in arrays},
        "arrays": {name: [array.dtype.name, array.shape] for name, array in arrays.items()},
    }
    send(channel, header, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()))


def receive_item(channel: socket, header: dict[str, Any], most: int) -> Any:
    """The item that ``header`` announces. Raises ValueError when it would take more than ``most`` bytes."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in header["values"].items()}
    for name, (kind, shape) in header["arrays"].items():
        values[name] = _receive_array(channel, kind, tuple(shape), most)
    return KINDS[header["kind"]](**values)


def _receive_array(channel: socket, kind: str, shape: tuple[int, ...], most: int) -> NDArray[Any]:
    # In Python's integers: in 64 bits a hostile shape could overflow to a size that looks small.
    size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
    if kind not in TYPES or not 0 < size <= most:
        raise ValueError(f"an array of {size} bytes of {kind} is not expected")
    array = np.empty(shape, kind)
    _fill(channel, array.reshape(-1).view(np.uint8).data)
    return array


def _fill(channel: socket, view: memoryview) -> None:
    while view:
        received = channel.recv_into(view)
        if not received:
            raise EOFError("the other side is gone")
        view = view[received:]
