"""The mask probe as a fact that an arm's proof may name."""

from __future__ import annotations

from collections.abc import Mapping

from quaver.evaluate.compare.fields import known
from quaver.evaluate.compare.servers import Server
from quaver.evaluate.mask import Verdict, probe_mask
from quaver.questions import Json


def mask_probe(server: Server, request: Mapping[str, Json], settings: Mapping[str, Json]) -> Verdict:
    """Which mask the image tokens of a server have; see ``quaver.evaluate.mask``.

    ``settings``: ``top`` and ``changed``, the two images as data URLs, equal in their top half, and
    ``image_token``, the id that stands for an image patch. Raises BadRequest when the reply has no
    log-probabilities of the prompt, or no run of that token in it.
    """
    given = known(settings, "probe", {"top": str, "changed": str, "image_token": int}, {})
    reading = probe_mask(
        lambda body: server.ask(body)[0], request, (given["top"], given["changed"]), given["image_token"]
    )
    return reading.verdict
