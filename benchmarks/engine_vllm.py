"""Row h: label reads of the hybrid layout as a chat model, Quaver's server beside vLLM's with our plugin in it.

Both answer the same bodies with the same prompts over HTTP, with as many threads and as much memory for states; whose
turn it is not sleeps. bfloat16 on both sides: vLLM's kernel of recurrent layers for CPUs takes nothing else. Needs
``scripts/environment vllm``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import httpx
from checkpoints import add_chat_template
from engine_load import CLIENTS, mixed_bodies
from engine_report import Check
from engine_sides import Plan
from engine_texts import Texts, body, difference
from engine_timing import medians, ratio, seconds
from serving import KEPT, Engine, posted, rest, servers_in_turns, serving

from quaver.heads.checkpoint import CONFIG, WEIGHTS

LENGTH, FITS = "8192", "8193"  # vLLM takes one more token in a label read
OPTIONS: dict[Engine, list[str]] = {
    "quaver": ["--state-cache", f"{KEPT}GiB"],
    # Compiling would take longer than what is measured.
    "vllm": ["--max-model-len", FITS, "--enable-prefix-caching", "--enforce-eager"],
}
ROUNDS = 3


def beside_vllm(plan: Plan) -> list[Check]:
    """A state that nobody knows, what is asked about it next and after that, and many clients."""
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # else vLLM compiles the rank of a token at its first request
    model, texts = chat(plan.hybrid), Texts(plan.hybrid)
    with ExitStack() as running:
        clients: dict[Engine, httpx.Client] = {}
        for engine, options in OPTIONS.items():
            told = ["--dtype", "bfloat16", "--special-tokens", "reference", "--max-length", LENGTH, *options]
            url = running.enter_context(serving(engine, model, *told))
            clients[engine] = running.enter_context(httpx.Client(base_url=url, timeout=3600))
        return [*_cold(plan, texts, clients), *_follow_ups(plan, texts, clients), *_rate(plan, texts, clients)]


def chat(release: Path) -> Path:
    """The release's backbone as a chat model beside it: the same weights without the head, and a chat template."""
    folder = release.with_name(f"{release.name}-chat")
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for file in release.iterdir():
            if file.is_file() and file.name not in (CONFIG, WEIGHTS):
                shutil.copy(file, unfinished)
        add_chat_template(unfinished)
        unfinished.rename(folder)
    return folder


def _cold(plan: Plan, texts: Texts, clients: dict[Engine, httpx.Client]) -> list[Check]:
    tokens, replies = plan.tokens(2048), {}

    def sides(number: int) -> dict[Engine, Callable[[], object]]:
        questions = {"q": texts.questions(0, number)["a"]}
        asked = body(texts.state(tokens, f"cold {number}"), questions)

        def turn(engine: Engine) -> Callable[[], object]:
            return lambda: replies.update({engine: posted(clients[engine], asked)})

        return {engine: turn(engine) for engine in clients}

    measured = servers_in_turns(plan.rounds or ROUNDS, sides)
    what = f"one question about a state of {tokens} that nobody knows"
    notes = {"rounds": len(measured["vllm"]), "difference": difference(replies["quaver"], replies["vllm"])}
    found = ratio(measured["vllm"], measured["quaver"])
    return [Check("h", what, medians(measured), "s", found, ">=", 1.0, notes)]


def _follow_ups(plan: Plan, texts: Texts, clients: dict[Engine, httpx.Client]) -> list[Check]:
    """vLLM keeps recurrent states at the end of its blocks only, so every follow-up reads the rest of one again.

    The three prompts of the first request may find each other's blocks, or read all three times.
    """
    tokens, rounds = plan.tokens(4096), plan.rounds or ROUNDS
    first: list[dict[Engine, float]] = []
    again: list[float] = []
    theirs: dict[str, list[float]] = {"second": [], "third and fourth": []}
    for number in range(rounds):
        state = texts.state(tokens, f"followed {number}")
        taken: dict[Engine, list[float]] = {}
        for engine, client in clients.items():
            rest()
            bodies = [body(state, texts.questions(0, f"{number} {turn}")) for turn in range(4)]
            taken[engine] = [seconds(partial(posted, client, asked)) for asked in bodies]
        first.append({engine: values[0] for engine, values in taken.items()})
        again.append(median(taken["quaver"][1:]))
        theirs["second"].append(taken["vllm"][1])
        theirs["third and fourth"].append(median(taken["vllm"][2:]))
    notes = {"rounds": rounds, "first": first}
    checks = []
    for (which, values), target in zip(theirs.items(), (10.0, 4.0), strict=True):
        what = f"the {which} three questions about a state of {tokens}"
        figures = {"quaver": median(again), "vllm": median(values)}
        checks.append(Check("h", what, figures, "s", ratio(values, again), ">=", target, notes))
    return checks


def _rate(plan: Plan, texts: Texts, clients: dict[Engine, httpx.Client]) -> list[Check]:
    count, replies = plan.count(48, least=CLIENTS), {}

    def sides(number: int) -> dict[Engine, Callable[[], object]]:
        bodies = mixed_bodies(texts, plan, count, f"vllm {number}")

        def turn(engine: Engine) -> Callable[[], object]:
            ask = partial(posted, clients[engine])
            return lambda: replies.update({engine: list(threads.map(ask, bodies))})

        return {engine: turn(engine) for engine in clients}

    with ThreadPoolExecutor(CLIENTS) as threads:
        measured = servers_in_turns(plan.rounds or ROUNDS, sides)
    rates = {engine: count / value for engine, value in medians(measured).items()}
    what = f"{count} requests of three questions, states of {plan.tokens(50)} to {plan.tokens(800)}, {CLIENTS} clients"
    notes = {
        "rounds": len(measured["vllm"]),
        "difference": max(map(difference, replies["quaver"], replies["vllm"])),
    }
    return [Check("h", what, rates, "requests/s", ratio(measured["vllm"], measured["quaver"]), ">=", 2.0, notes)]
