"""Both engines of ``quaver serve`` side by side: the same checkpoints, requests and clients, in turns, in one run.

Joint reads run on a Clef release whose layers are all attention, label reads on a Qwen3-like chat model: a CPU
without AVX512-BF16 runs both in vLLM. Weights are random. Each server is a process of its own with as many threads as
the other and as much memory for states; the one whose turn it is not sleeps. A row is a read and a load (``LOADS``):
requests per second of either engine by the median round, the median of the rounds' ratios of seconds (below 1 vLLM is
faster), the largest difference of a probability in the last round, and which share of its tokens either engine had
from an earlier request. Then comes one line of JSON.

    .venv/bin/python benchmarks/beside_vllm.py [--rounds 3] [--layout dense-0.1b] [--dtype float32] [--eager] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from checkpoints import CACHE, LAYOUTS, TINY, add_chat_template, checkpoint
from engine_texts import Texts, difference
from engine_timing import medians, ratio
from serving import KEPT, Engine, posted, servers_in_turns, serving
from transformers import Qwen3Config, Qwen3ForCausalLM

CHAT = {
    "vocab_size": 3136,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
ENGINES: tuple[Engine, ...] = ("quaver", "vllm")
#: Of a prompt; vLLM takes one more token in a label read.
LENGTH, FITS = "4096", "4097"
HEADING = """\
| read | load | quaver, requests/s | vllm, requests/s | vllm's time / quaver's | difference | reused by either |
|---|---|---|---|---|---|---|"""
REUSE = '{"quaver": {"state_reuse": true}}'


@dataclass(frozen=True, slots=True)
class Load:
    """``requests`` about states of ``tokens``, every state asked about ``times`` times, from ``clients`` at once."""

    name: str
    tokens: int
    requests: int
    times: int
    clients: int

    def bodies(self, texts: Texts, seed: object) -> list[dict[str, Any]]:
        states = [texts.state(self.tokens, f"{seed} {number}") for number in range(self.requests // self.times)]
        return [
            {"state": state, "questions": texts.questions(0, f"{seed} {turn}")}
            for turn in range(self.times)
            for state in states
        ]


LOADS = (
    Load("one client, new states", 250, 8, 1, 1),
    Load("8 clients, new states", 250, 32, 1, 8),
    Load("8 clients, every state 8 times", 1000, 32, 8, 8),
)
SMALL = (Load("4 clients, every state twice", 200, 8, 2, 4),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="each with both engines")
    parser.add_argument("--layout", choices=LAYOUTS, default="dense-0.1b", help="of the joint reads")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of both engines")
    parser.add_argument("--eager", action="store_true", help="vLLM does not compile")
    parser.add_argument("--tiny", action="store_true", help="a small run, whose figures mean nothing")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the checkpoints")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    rows: list[dict[str, Any]] = []
    machine = {"threads": os.environ["OMP_NUM_THREADS"], "eager": given.eager, "dtype": given.dtype}
    print(HEADING, flush=True)
    try:
        for read, model in {"joint": checkpoint(given.layout, given.cache), "label": chat(given.cache)}.items():
            options = sides_of(read, given.layout, given.dtype, given.eager)
            for row in compare(read, model, options, SMALL if given.tiny else LOADS, 1 if given.tiny else given.rounds):
                rows.append(row)
                print(line(row), flush=True)
    finally:
        # Whoever ends it early has what was measured.
        print(json.dumps({"benchmark": "beside vllm", **machine, "rows": rows}), flush=True)


def sides_of(read: str, layout: str, dtype: str, eager: bool) -> dict[Engine, list[str]]:
    """What either engine's server is told."""
    options = ["--dtype", dtype, "--special-tokens", "reference", "--max-length", LENGTH]
    # On a CPU, where vLLM's memory for states is set too.
    ours = [] if torch.cuda.is_available() else ["--state-cache", f"{KEPT}GiB"]
    # vLLM keeps no prefixes of a Qwen3.5 that has no recurrent layer: it looks for their states.
    keeps = read == "label" or "linear_attention" in LAYOUTS[layout].text["layer_types"]
    theirs = ["--enable-prefix-caching" if keeps else "--no-enable-prefix-caching", "--max-model-len", FITS]
    theirs += ["--enforce-eager"] if eager else []
    # On a GPU both engines are on the same one.
    theirs += ["--gpu-memory-utilization", "0.5"]
    theirs += ["--additional-config", REUSE] if keeps and read == "joint" else []
    return {"quaver": options + ours, "vllm": options + theirs}


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    rates = " | ".join(f"{row[engine]:.2f}" for engine in ENGINES)
    reused = " and ".join(f"{row['reused'][engine]:.2f}" for engine in ENGINES)
    return f"| {row['read']} | {row['load']} | {rates} | {row['ratio']:.2f} | {row['difference']:.1g} | {reused} |"


def compare(
    read: str, model: Path, options: Mapping[Engine, Sequence[str]], loads: Sequence[Load], rounds: int
) -> Iterator[dict[str, Any]]:
    """Every load on both servers, which wait for their turn side by side."""
    texts = Texts(TINY)
    with ExitStack() as servers:
        urls = {engine: servers.enter_context(serving(engine, model, *told)) for engine, told in options.items()}
        clients = {
            engine: servers.enter_context(httpx.Client(base_url=url, timeout=600)) for engine, url in urls.items()
        }
        for load in loads:
            replies: dict[str, list[dict[str, Any]]] = {}

            def sides(number: int, load: Load = load, replies: Any = replies) -> dict[Engine, Callable[[], object]]:
                bodies = load.bodies(texts, f"{load.name} {number}")

                def ask(engine: Engine) -> Callable[[], object]:
                    def work() -> None:
                        with ThreadPoolExecutor(load.clients) as threads:
                            replies[engine] = list(threads.map(lambda body: posted(clients[engine], body), bodies))

                    return work

                return {engine: ask(engine) for engine in clients}

            measured = servers_in_turns(rounds, sides)
            yield {
                "read": read,
                "load": load.name,
                "rounds": rounds,
                **{engine: load.requests / value for engine, value in medians(measured).items()},
                "ratio": ratio(measured["vllm"], measured["quaver"]),
                "difference": max(map(difference, replies["quaver"], replies["vllm"])),
                "reused": {engine: reused(answers) for engine, answers in replies.items()},
            }


def reused(replies: list[dict[str, Any]]) -> float:
    """Which share of the last round's tokens was not read again."""
    usage = [reply["usage"] for reply in replies]
    cached = sum(one["input_tokens_details"]["cached_tokens"] for one in usage)
    return round(cached / sum(one["input_tokens"] for one in usage), 3)


def chat(cache: Path) -> Path:
    """A chat model with the tokenizer of the tests' tiny release, made once."""
    folder = cache / "chat-0.03b"
    if not folder.exists():
        unfinished = folder.with_name("chat-0.03b.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        torch.manual_seed(20261130)
        Qwen3ForCausalLM(Qwen3Config(**CHAT, max_position_embeddings=8192)).save_pretrained(unfinished)
        shutil.copy(TINY / "tokenizer.json", unfinished)
        add_chat_template(unfinished)
        unfinished.rename(folder)
    return folder


if __name__ == "__main__":
    main()
