"""Ten inputs through a served engine, beside the published code.

Decisions about invoices with thresholds, other scripts, empty instructions, a state cut at the limit, one and two
images, a film, an image with a film. Every input is asked alone once and twice among four clients. Printed are how many
top options are the reference's and the largest difference of a probability: beside the reference in the precision of
the engine, beside the reference in float32, and of the reference itself between the two, which is what rounding does to
that release. Weights are random: those of the tiny releases sharp, so that rounding moves answers far; those of the
layouts of ``checkpoints.py`` as smooth as they are drawn, so that options have nearly even probabilities.
Ends with 1 when a top option differs where both are float32, or a server failed.

    .venv/bin/python benchmarks/validation.py [--engine quaver] [--engine vllm] [--release clef-omni-tiny]
        [--release dense-0.1b] [--dtype float32] [--compiled]
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from operator import sub
from pathlib import Path
from typing import Any

import httpx
import torch
from checkpoints import LAYOUTS, checkpoint
from serving import ROOT, Engine, posted, python, serving
from validation_inputs import INPUTS, MAX_LENGTH, MEDIA
from validation_published import Encoder, Published

sys.path.insert(0, str(ROOT / "tests/golden"))
from vectors import request

TINY = ("clef-flash-tiny", "clef-omni-tiny")
HEADING = """\
| engine | release | precision | way | same precision | reference in float32 | the reference itself |
|---|---|---|---|---|---|---|"""
CLIENTS = 4
SETTINGS = ["--confidence", "max", "--special-tokens", "reference", "--max-length", str(MAX_LENGTH)]

#: Probabilities of every question.
Answers = list[list[float]]


@dataclass(frozen=True, slots=True)
class Seen:
    """How many top options of ``questions`` agree, and the largest ``difference`` of a probability, at ``worst``."""

    agreed: int
    questions: int
    difference: float
    worst: str

    @classmethod
    def of(cls, replies: Sequence[tuple[str, Answers]], expected: Mapping[str, Answers]) -> Seen:
        """Of answers by the name of their input."""
        pairs = [
            (name, one, other) for name, reply in replies for one, other in zip(reply, expected[name], strict=True)
        ]
        far, worst = max((max(map(abs, map(sub, one, other))), name) for name, one, other in pairs)
        return cls(sum(top(one) == top(other) for _, one, other in pairs), len(pairs), far, worst)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", action="append", choices=["quaver", "vllm"], help="both when not given")
    parser.add_argument("--release", action="append", choices=[*TINY, *LAYOUTS], help="both tiny ones when not given")
    parser.add_argument("--dtype", action="append", choices=["float32", "bfloat16"], help="float32 when not given")
    parser.add_argument("--compiled", action="store_true", help="vLLM compiled too, not only eager")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    failed = False
    print(HEADING, flush=True)
    try:
        for engine, release, dtype, way in ways(given):
            begin = f"| {engine} | {release} | {dtype} | {way} |"
            if reason := cannot(engine, release, dtype):
                print(f"{begin} not run: {reason} | | |", flush=True)
                continue
            try:
                seen = validate(engine, release, dtype, way)
            except RuntimeError as error:
                # A server that does not start keeps no other from its turn.
                failed = True
                print(error, file=sys.stderr)
                print(f"{begin} failed | | |", flush=True)
                continue
            found = {name: asdict(one) for name, one in seen.items()}
            rows.append({"engine": engine, "release": release, "dtype": dtype, "way": way, **found})
            print(begin, " | ".join(words(one) for one in seen.values()), "|", flush=True)
    finally:
        # Whoever ends it early has what was compared.
        print(json.dumps({"benchmark": "validation", "rows": rows}), flush=True)
    differs = any(row["same"]["agreed"] < row["same"]["questions"] for row in rows if row["dtype"] == "float32")
    sys.exit(failed or differs)


def ways(given: argparse.Namespace) -> Iterator[tuple[Engine, str, str, str]]:
    """Engine, release, precision and whether vLLM compiles."""
    for engine, release, dtype in product(
        given.engine or ["quaver", "vllm"], given.release or TINY, given.dtype or ["float32"]
    ):
        yield engine, release, dtype, "eager"
        if engine == "vllm" and given.compiled:
            yield engine, release, dtype, "compiled"


def words(seen: Seen) -> str:
    return f"{seen.agreed} of {seen.questions}, {seen.difference:.2g} ({seen.worst})"


def cannot(engine: Engine, release: str, dtype: str) -> str | None:
    """Why this machine cannot run it."""
    if engine == "quaver":
        return None
    if python(engine) is None:
        return "vLLM is not installed"
    if torch.cuda.is_available() or release in ("clef-omni-tiny", "dense-0.1b"):
        return None
    if release == "clef-flash-tiny":
        return "vLLM's gated delta kernel for CPUs takes heads of 64 and more, these have 16 and 24"
    return "vLLM's gated delta kernel for CPUs takes bfloat16 alone" if dtype == "float32" else None


def validate(engine: Engine, release: str, dtype: str, way: str) -> dict[str, Seen]:
    """All inputs once alone and twice in company, beside the reference in the same precision and in float32; and the
    reference itself."""
    same, exact = published(release, dtype), published(release, "float32")
    with (
        serving(engine, folder(release), *told(engine, dtype, way)) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        replies = [(name, asked(client, name)) for name in INPUTS]
        again = [*INPUTS, *INPUTS]
        replies += zip(again, clients.map(partial(asked, client), again), strict=True)
    return {
        "same": Seen.of(replies, same),
        "exact": Seen.of(replies, exact),
        "rounding": Seen.of([*same.items()], exact),
    }


def told(engine: Engine, dtype: str, way: str) -> list[str]:
    theirs = ["--no-enable-prefix-caching", "--max-model-len", str(MAX_LENGTH)]
    theirs += ["--enforce-eager"] if way == "eager" else []
    return [*SETTINGS, "--dtype", dtype, *(theirs if engine == "vllm" else [])]


def folder(release: str) -> Path:
    return ROOT / "tests/golden" / release if release in TINY else checkpoint(release)


@cache
def published(release: str, dtype: str) -> dict[str, Answers]:
    """What the reference says of every input."""
    encode, model = Encoder(folder(release), MAX_LENGTH), Published(folder(release), dtype)
    return {name: model.probabilities(*encode(request(body, MEDIA))) for name, body in INPUTS.items()}


def asked(client: httpx.Client, name: str) -> Answers:
    body = dict(INPUTS[name])
    for kind in {"images", "videos"} & body.keys():
        body[kind] = [data_url(MEDIA / item) for item in body[kind]]
    reply = posted(client, body)
    return [ordered(question, reply["answers"][name]) for name, question in body["questions"].items()]


def data_url(file: Path) -> str:
    return f"data:;base64,{base64.b64encode(file.read_bytes()).decode()}"


def ordered(question: dict[str, Any], answer: dict[str, Any]) -> list[float]:
    """The probabilities of an answer in the order of the prompt, which sorts the options of a choice."""
    if question["type"] == "noul":
        return [answer["noul"], 1 - answer["noul"]]
    given = answer["probabilities"]
    return [given[name] for name in (sorted(given) if question["type"] == "choice" else given)]


def top(probabilities: list[float]) -> int:
    return probabilities.index(max(probabilities))


if __name__ == "__main__":
    main()
