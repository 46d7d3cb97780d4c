"""The mask probe: does a model let the tokens of an image see each other, or only those before them?

Two pictures that are equal above and differ below are read with the same prompt. Under a causal mask the
log-probabilities at the first tokens of the image cannot change; under a bidirectional one they do. One
picture read twice gives the noise floor. Needs a server that answers ``prompt_logprobs`` as vLLM does, and
nothing patched inside it.

A vision tower lets every patch see the whole picture before the language model reads any: behind one,
log-probabilities change under every mask, so only ``causal`` is proof. Without an encoder both are.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any, Literal

from quaver.errors import BadRequest
from quaver.questions import Json

Verdict = Literal["causal", "bidirectional", "undecided"]
#: A chat body to its reply.
Ask = Callable[[dict[str, Json]], Mapping[str, Any]]
#: Log-probabilities at one token of a prompt, by token id.
Entry = dict[int, float]

#: How many times the noise floor a change must be, and the least change in nats that counts at all.
ABOVE_NOISE = 5.0
LEAST_CHANGE = 1e-3
#: Fewer tokens have no first quarter worth looking at.
LEAST_TOKENS = 8
#: Pixels of a side of the squares that a picture is made of.
SQUARE = 24


@dataclass(frozen=True, slots=True)
class MaskReading:
    """What a probe found. ``change`` and ``noise`` are the largest differences of a log-probability in nats at
    the first ``compared`` of the image's ``tokens``, between the two pictures and between two reads of one."""

    tokens: int
    compared: int
    change: float
    noise: float

    @property
    def verdict(self) -> Verdict:
        if self.change <= LEAST_CHANGE:
            return "causal"
        return "bidirectional" if self.change > ABOVE_NOISE * self.noise else "undecided"

    def facts(self) -> dict[str, Json]:
        return {
            "verdict": self.verdict,
            "change": self.change,
            "noise": self.noise,
            "tokens": self.tokens,
            "compared": self.compared,
        }


def probe_mask(
    ask: Ask, request: Mapping[str, Json], pictures: tuple[str, str], image_token: int | None = None
) -> MaskReading:
    """What ``ask`` answers about two pictures, data URLs that are equal in their upper half.

    ``request`` is laid under the body of every call. ``image_token`` is the id that stands for a part of an
    image, None takes the one that is repeated most in a row. Raises BadRequest when a reply has no
    log-probabilities of its prompt, or no image in it.
    """
    one, other = pictures
    first, again, changed = (_image_entries(ask, request, picture, image_token) for picture in (one, one, other))
    if not len(first) == len(again) == len(changed):
        raise BadRequest(f"the two pictures take {len(first)} and {len(changed)} tokens; they must take as many")
    compared = len(first) // 4
    return MaskReading(
        len(first), compared, _distance(first[:compared], changed[:compared]), _distance(first[:compared], again)
    )


def probe_pictures(width: int, height: int, seed: int = 0) -> tuple[str, str]:
    """Two pictures of coloured squares as data URLs, equal in the upper half and different everywhere below."""
    columns, rows = -(-width // SQUARE), -(-height // SQUARE)
    random = Random(seed)
    squares = [b"".join(random.randbytes(3) * SQUARE for _ in range(columns))[: 3 * width] for _ in range(rows)]
    lines = [squares[y // SQUARE] for y in range(height)]
    inverted = bytes(range(255, -1, -1))
    half = height // 2
    return _png(width, lines), _png(width, [*lines[:half], *(line.translate(inverted) for line in lines[half:])])


def _image_entries(ask: Ask, request: Mapping[str, Json], picture: str, image_token: int | None) -> list[Entry]:
    """Log-probabilities by token id at every token of the image."""
    content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "Describe the image."}]
    asked = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "temperature": 0}
    reply = ask({**request, **asked, "prompt_logprobs": 1})
    choices = reply.get("choices") or [{}]
    positions = reply.get("prompt_logprobs") or choices[0].get("prompt_logprobs")
    if not isinstance(positions, list):
        raise BadRequest("the mask probe needs prompt_logprobs in the reply, and the server gave none")
    entries = [_logprobs(entry) for entry in positions]
    if image_token is None:
        # vLLM names the prompt's own token first, then likelier ones.
        image_token = _longest(entries, lambda entry: next(iter(entry), -1))[0]
    block = _longest(entries, lambda entry: image_token if image_token in entry else -1)[1]
    if len(block) < LEAST_TOKENS:
        raise BadRequest(
            f"the mask probe found {len(block)} tokens {image_token} in the prompt and needs {LEAST_TOKENS}; is that "
            "the image token, and does the server let the model see?"
        )
    return block


def _longest(entries: Sequence[Entry], token: Callable[[Entry], int]) -> tuple[int, list[Entry]]:
    """The token that is repeated most in a row, and the entries where it is; -1 is none."""
    runs = ((of, list(run)) for of, run in groupby(entries, token))
    return max((run for run in runs if run[0] >= 0), key=lambda run: len(run[1]), default=(-1, []))


def _logprobs(entry: Any) -> Entry:
    if not isinstance(entry, Mapping):  # the first token has none
        return {}
    return {int(token): float(said["logprob"]) for token, said in entry.items() if isinstance(said, Mapping)}


def _distance(a: Sequence[Entry], b: Sequence[Entry]) -> float:
    """The largest difference in nats of what both name."""
    pairs = zip(a, b, strict=False)
    return max((abs(x[token] - y[token]) for x, y in pairs for token in x.keys() & y.keys()), default=0.0)


def _png(width: int, lines: Sequence[bytes]) -> str:
    """A picture as a data URL; ``lines`` are RGB bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, len(lines), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines))
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"
