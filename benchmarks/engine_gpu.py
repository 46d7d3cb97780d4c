"""Cold and reused prompts, many clients and the share of the peak on a GPU, in the layout of clef-flash.

Random parameters in bfloat16. Prints a table, then one line of JSON. ``scripts/gpu-check`` runs it.

    python benchmarks/engine_gpu.py [--layout flash-9b] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from checkpoints import CACHE, LAYOUTS, checkpoint
from engine_texts import Texts, body
from engine_timing import Seconds, matrix_peak, medians, seconds
from safetensors import safe_open

import quaver
from quaver.decider import Decider

LENGTHS = (300, 1000, 4000)
ROUNDS = 7
#: Rounds that are not counted: kernels are compiled for new shapes.
WARM_UP = 2
CLIENTS = 64
REQUESTS = 512


def one_request(decider: Decider[Any], texts: Texts, tokens: int, rounds: int) -> dict[str, Any]:
    """Medians of a prompt of ``tokens`` whose state is new, and of other questions about the same state."""
    measured: Seconds = {"cold": [], "reused": []}
    for number in range(-WARM_UP, rounds):
        cold = texts.sized(tokens, f"{tokens} {number}")
        reused = body(cold["state"], texts.questions(0, f"other {number}"))
        for name, asked in (("cold", cold), ("reused", reused)):
            measured[name].append(seconds(partial(decider.systemone, asked)))
    timed = {name: values[WARM_UP:] for name, values in measured.items()}
    return {"tokens": len(texts.encoded(cold).ids), **medians(timed)}


def many_clients(decider: Decider[Any], texts: Texts, requests: int) -> dict[str, Any]:
    """Requests per second of new states of 50 to 800 tokens with three questions each."""
    rng = random.Random("clients")

    def bodies(name: str, count: int) -> list[dict[str, Any]]:
        states = [texts.state(rng.randint(50, 800), f"{name} {number}") for number in range(count)]
        return [body(state, texts.questions(0, number % 8)) for number, state in enumerate(states)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(decider.systemone, bodies("warm-up", CLIENTS)))
        asked = bodies("clients", requests)
        before = decider.stats()["tokens_computed"]
        taken = seconds(lambda: list(clients.map(decider.systemone, asked)))
    computed = decider.stats()["tokens_computed"] - before
    return {
        "clients": CLIENTS,
        "requests": requests,
        "per_second": requests / taken,
        "tokens_per_second": computed / taken,
    }


def matrix_parameters(release: Path) -> int:
    """Weights of the text model's layers that every token is multiplied with."""
    total = 0
    for file in release.glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            names = weights.keys()
            for name in names:
                shape = weights.get_slice(name).get_shape()
                if ".language_model.layers." in name and len(shape) == 2:
                    total += shape[0] * shape[1]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", default="flash-9b", choices=["tiny", *LAYOUTS])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the checkpoints")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    arguments = parser.parse_args()
    release = checkpoint(arguments.layout, arguments.cache, arguments.device)
    # On a CPU, where only the logic is tried, products in bfloat16 can take minutes.
    dtype = torch.bfloat16 if arguments.device == "cuda" else torch.float32
    peak = matrix_peak(dtype, arguments.device, size=8192 if arguments.device == "cuda" else 512)
    per_token = 2.0 * matrix_parameters(release)
    texts = Texts(release)
    with quaver.load(str(release), device=arguments.device, dtype=str(dtype).removeprefix("torch.")) as decider:
        singles = [one_request(decider, texts, tokens, arguments.rounds) for tokens in LENGTHS]
        clients = many_clients(decider, texts, arguments.requests)
    for single in singles:
        single["share_of_peak"] = per_token * single["tokens"] / single["cold"] / peak
    clients["share_of_peak"] = per_token * clients["tokens_per_second"] / peak
    print("| tokens | cold | reused | share of peak, cold |\n|---|---|---|---|")
    for single in singles:
        print("| {tokens} | {cold:.4f} s | {reused:.4f} s | {share_of_peak:.3f} |".format(**single))
    print("{clients} clients: {per_second:.2f} requests/s, {share_of_peak:.3f} of the peak".format(**clients))
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    machine = {"device": device, "torch": torch.__version__, "layout": arguments.layout, "peak": peak}
    print(json.dumps({"benchmark": "engine_gpu", **machine, "one_request": singles, "many_clients": clients}))


if __name__ == "__main__":
    main()
