"""Inputs of every kind through a served engine, beside the published code's answers.

Every input is asked alone once and twice among four clients. Its top options must be the reference's; printed is the
largest difference of a probability. Of the tiny releases there are ten inputs each, and the reference's numbers are the
golden vectors of the tests, in float32. Layouts of ``checkpoints.py`` get texts, and the reference runs in the
precision of the engine. Ends with 1 when a top option differs where both are float32.

    .venv/bin/python benchmarks/validation.py [--engine quaver] [--engine vllm] [--release clef-omni-tiny]
        [--layout dense-0.1b] [--dtype float32] [--compiled]
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch
from checkpoints import LAYOUTS, checkpoint
from serving import ROOT, Engine, posted, python, serving

sys.path.insert(0, str(ROOT / "tests/golden"))
from vectors import cases

GOLDEN = ROOT / "tests/golden"
#: Questions of all types, criteria in other scripts, empty instructions, a cut state, one and two images, a film, both.
INPUTS = {
    "clef-flash-tiny": [
        "text-plain",
        "text-cjk",
        "instr-variants",
        "state-nested",
        "choice-26",
        "trunc-400",
        "image-scene_640x480",
        "image-2",
        "video-8",
        "video-image",
    ],
    "clef-omni-tiny": [
        "text-plain",
        "text-mixed",
        "text-combining",
        "state-nested",
        "trunc-600",
        "image-square_256",
        "image-2",
        "audio-mp3",
        "video-odd",
        "mixed-image-audio-video-silent",
    ],
}
HEADING = """\
| engine | release | precision | way | inputs | top options | largest difference |
|---|---|---|---|---|---|---|"""
#: Asked about layouts.
DECISIONS: dict[str, Any] = {
    "approve": {
        "type": "noul",
        "instructions": "Approve up to 5,000 EUR when the order number is there.",
    },
    "route": {
        "type": "choice",
        "instructions": "Above 10,000 EUR the board decides, above 5,000 EUR the head of department.",
        "criteria": {"clerk": "at most 5,000 EUR", "head": "more than 5,000 EUR", "board": "more than 10,000 EUR"},
    },
    "risk": {"type": "score", "instructions": "", "criteria": ["none", "some", "much", "fraud"]},
}
STATES: dict[str, Any] = {
    "invoice below": "Invoice 2024/0815, order 77-1: 40 chairs, total 4,990.00 EUR, due in 30 days.",
    "invoice above": {
        "invoice": "2024/0816",
        "order": None,
        "total": 12400.5,
        "currency": "EUR",
        "lines": [1, 2.5, []],
    },
    "Unicode": "Überprüfung: Betrag 1.299,00 € – 請求書 № ٤٢, naïve cafe\u0301 👍🏽\u200d\n\tстрока",
    "empty": "",
    "long": "Line item, quantity, price. " * 150,
}
CLIENTS = 4
SETTINGS = {"--confidence": "max", "--special-tokens": "reference"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one way of asking gave: how many top options of ``questions`` agree, and the largest difference."""

    difference: float
    agreed: int
    questions: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", action="append", choices=["quaver", "vllm"], help="both when not given")
    parser.add_argument("--release", action="append", choices=[*INPUTS], help="both when not given")
    parser.add_argument("--dtype", action="append", choices=["float32", "bfloat16"], help="float32 when not given")
    parser.add_argument("--compiled", action="store_true", help="vLLM compiled too, not only eager")
    parser.add_argument("--layout", action="append", choices=LAYOUTS, default=[], help="widened releases besides")
    given = parser.parse_args()
    engines: list[Engine] = given.engine or ["quaver", "vllm"]
    print(HEADING)
    rows = []
    for engine in engines:
        for release in [*(given.release or INPUTS), *given.layout]:
            if reason := cannot(engine, release):
                print(f"| {engine} | {release} | | | not run | | {reason} |")
                continue
            for dtype in given.dtype or ["float32"]:
                for way in ["eager", "compiled"] if engine == "vllm" and given.compiled else ["eager"]:
                    row = (validate if release in INPUTS else validate_layout)(engine, release, dtype, way)
                    rows.append({"engine": engine, "release": release, "dtype": dtype, "way": way, **row})
                    print(
                        f"| {engine} | {release} | {dtype} | {way} | {row['inputs']} | {row['agreed']} of "
                        f"{row['questions']} | {row['difference']:.2g} ({row['worst']}) |",
                        flush=True,
                    )
    print(json.dumps({"benchmark": "validation", "rows": rows}))
    sys.exit(any(row["agreed"] < row["questions"] for row in rows if row["dtype"] == "float32"))


def cannot(engine: Engine, release: str) -> str | None:
    """Why this machine cannot run it."""
    if engine == "quaver":
        return None
    if python(engine) is None:
        return "vLLM is not installed"
    supported = torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if release not in ("clef-omni-tiny", "dense-0.1b") and not supported:
        return "vLLM's gated delta layers need AVX512-BF16 or AMX on a CPU"
    return None


def validate(engine: Engine, release: str, dtype: str, way: str) -> dict[str, Any]:
    """All inputs once alone and twice in company, on servers of the lengths that they ask for."""
    found = {case["id"]: case for case in cases(f"{release}/cases")}
    chosen = [found[name] for name in INPUTS[release]]
    results: list[tuple[str, Seen]] = []
    for length in {case.get("max_length") for case in chosen}:
        group = [case for case in chosen if case.get("max_length") == length]
        cut = [] if length is None else ["--max-length", str(length)]
        options = [*told(engine, dtype, way), *cut]
        with serving(engine, GOLDEN / release, *options) as url, httpx.Client(base_url=url, timeout=600) as client:
            results += [(case["id"], compare(ask(client, release, case), case)) for case in group]
            with ThreadPoolExecutor(CLIENTS) as clients:
                replies = clients.map(partial(ask, client, release), group * 2)
                results += [(case["id"], compare(reply, case)) for reply, case in zip(replies, group * 2, strict=True)]
    return total(results)


def validate_layout(engine: Engine, layout: str, dtype: str, way: str) -> dict[str, Any]:
    """Decisions about invoices on random weights of a larger layout."""
    from engine_sides import Reference  # the published code, which only the environment of the tests has

    bodies = {name: {"model": "clef", "state": state, "questions": DECISIONS} for name, state in STATES.items()}
    with Reference(checkpoint(layout), dtype) as reference:
        expected = {name: list(numbers(reference.systemone(body))) for name, body in bodies.items()}
    results = []
    with (
        serving(engine, checkpoint(layout), *told(engine, dtype, way)) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        for asked in ([name] for name in bodies), [[*bodies, *bodies]]:
            for names in asked:
                replies = clients.map(lambda name: posted(client, bodies[name]), names)
                results += [
                    (name, seen(list(zip(numbers(reply), expected[name], strict=True))))
                    for name, reply in zip(names, replies, strict=True)
                ]
    return total(results)


def numbers(reply: dict[str, Any]) -> Iterator[list[float]]:
    """Probabilities of every question in the order of the request."""
    for answer in reply["answers"].values():
        yield [answer["noul"], 1 - answer["noul"]] if answer["type"] == "noul" else [*answer["probabilities"].values()]


def told(engine: Engine, dtype: str, way: str) -> list[str]:
    options = [text for pair in SETTINGS.items() for text in pair] + ["--dtype", dtype]
    if engine == "vllm":
        options += [
            "--no-enable-prefix-caching",
            "--max-model-len",
            "4096",
            *(["--enforce-eager"] if way == "eager" else []),
        ]
    return options


def total(results: list[tuple[str, Seen]]) -> dict[str, Any]:
    worst, far = max(results, key=lambda result: result[1].difference)
    return {
        "inputs": len(results),
        "agreed": sum(one.agreed for _, one in results),
        "questions": sum(one.questions for _, one in results),
        "difference": far.difference,
        "worst": worst,
    }


def ask(client: httpx.Client, release: str, case: dict[str, Any]) -> dict[str, Any]:
    asked = dict(case["request"])
    for kind in {"images", "audio", "videos"} & asked.keys():
        asked[kind] = [data_url(GOLDEN / release / item) for item in asked[kind]]
    return posted(client, asked)


def data_url(file: Path) -> str:
    return f"data:;base64,{base64.b64encode(file.read_bytes()).decode()}"


def compare(reply: dict[str, Any], case: dict[str, Any]) -> Seen:
    return seen(list(answers(reply, case)))


def seen(pairs: list[tuple[list[float], list[float]]]) -> Seen:
    """Ours and the reference's probabilities of every question."""
    agreed = sum(max(range(len(ours)), key=ours.__getitem__) == theirs.index(max(theirs)) for ours, theirs in pairs)
    far = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
    return Seen(far, agreed, len(pairs))


def answers(reply: dict[str, Any], case: dict[str, Any]) -> Iterator[tuple[list[float], list[float]]]:
    """Probabilities of every question, ours and the reference's, options in the order of the prompt."""
    for question, expected in zip(case["questions"], case["probabilities_fp32"], strict=True):
        answer = reply["answers"][question["id"]]
        if question["type"] == "noul":
            yield [answer["noul"], 1 - answer["noul"]], [expected[0], 1 - expected[0]]
        else:
            yield [answer["probabilities"][name] for name in question["option_ids"]], expected


if __name__ == "__main__":
    main()
