"""The mask probe: does an engine let the tokens of an image see each other, or only those before them?

Two images that are equal above and differ below are read with the same prompt. Under a causal mask the
log-probabilities at the first tokens of the image cannot change; under a bidirectional one they do. One
image read twice gives the noise floor. Needs a server that answers ``prompt_logprobs`` (vLLM), and nothing
patched inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from quaver.errors import BadRequest
from quaver.evaluate.compare.fields import known
from quaver.evaluate.compare.servers import Server
from quaver.questions import Json

#: How many times the noise floor a change must be, and the least change in nats that counts at all.
ABOVE_NOISE = 5.0
LEAST_CHANGE = 1e-3


def mask_probe(
    server: Server, request: Mapping[str, Json], settings: Mapping[str, Json]
) -> Literal["causal", "bidirectional"]:
    """Which mask the image tokens have.

    ``settings``: ``top`` and ``changed``, the two images as data URLs, equal in their top half, and
    ``image_token``, the id that stands for an image patch. Raises BadRequest when the reply has no
    log-probabilities of the prompt, or no run of that token in it.
    """
    given = known(settings, "probe", {"top": str, "changed": str, "image_token": int}, {})
    once, again = (_first_quarter(server, request, given["top"], given["image_token"]) for _ in range(2))
    other = _first_quarter(server, request, given["changed"], given["image_token"])
    noise, change = _distance(once, again), _distance(once, other)
    return "bidirectional" if change > max(LEAST_CHANGE, ABOVE_NOISE * noise) else "causal"


def _first_quarter(server: Server, request: Mapping[str, Json], image: str, image_token: int) -> list[float]:
    """Log-probabilities of the first quarter of the image's tokens: all of them lie in the upper half."""
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "Describe the image."}]
    body = {
        **request,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 1,
    }
    reply, _ = server.ask(body)
    positions = reply.get("prompt_logprobs")
    if not isinstance(positions, list):
        raise BadRequest("the mask probe needs prompt_logprobs in the reply, and the server gave none")
    at = [_logprob(entry, image_token) for entry in positions]
    block = [value for value in at if value is not None]
    if len(block) < 8:
        raise BadRequest(
            f"the mask probe found {len(block)} tokens {image_token} in the prompt; is that the image token?"
        )
    return block[: len(block) // 4]


def _logprob(entry: Any, token: int) -> float | None:
    found = entry.get(str(token)) if isinstance(entry, Mapping) else None
    return float(found["logprob"]) if isinstance(found, Mapping) else None


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Largest difference in nats; images of other sizes differ infinitely."""
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else float("inf")
