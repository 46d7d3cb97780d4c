"""Row h: label reads of the hybrid layout as a chat model, Quaver's server beside vLLM's with our plugin in it.

Both answer the same bodies with the same prompts over HTTP. bfloat16 on both sides: vLLM's kernel of recurrent
layers for CPUs takes nothing else. Needs ``scripts/environment vllm``.
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
from engine_timing import in_turns, medians, ratio, seconds
from serving import Engine, posted, serving

from quaver.heads.checkpoint import CONFIG, WEIGHTS

LENGTH = "8192"
OPTIONS: dict[Engine, list[str]] = {
    "quaver": [],
    # Compiling would take longer than what is measured.
    "vllm": ["--max-model-len", LENGTH, "--enable-prefix-caching", "--enforce-eager"],
}


def beside_vllm(plan: Plan) -> list[Check]:
    """A state that nobody knows, what is asked about it next and after that, and many clients."""
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # else vLLM compiles the rank of a token at its first request
    model, texts = chat(plan.hybrid), Texts(plan.hybrid)
    with ExitStack() as running:
        clients: dict[str, httpx.Client] = {}
        for engine, options in OPTIONS.items():
            told = ["--dtype", "bfloat16", "--special-tokens", "reference", "--max-length", LENGTH, *options]
            url = running.enter_context(serving(engine, model, *told))
            clients[engine] = running.enter_context(httpx.Client(base_url=url, timeout=3600))
        for client in clients.values():
            posted(client, body(texts.state(64, "warm-up"), texts.questions(0, "warm-up")))
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


def _cold(plan: Plan, texts: Texts, clients: dict[str, httpx.Client]) -> list[Check]:
    tokens, replies = plan.tokens(2048), {}

    def sides(number: int) -> dict[str, Callable[[], object]]:
        questions = {"q": texts.questions(0, number)["a"]}
        asked = body(texts.state(tokens, f"cold {number}"), questions)

        def turn(engine: str) -> Callable[[], object]:
            return lambda: replies.update({engine: posted(clients[engine], asked)})

        return {engine: turn(engine) for engine in clients}

    measured = in_turns(plan.rounds or 1, sides)
    what = f"one question about a state of {tokens} that nobody knows"
    notes = {"rounds": len(measured["vllm"]), "difference": difference(replies["quaver"], replies["vllm"])}
    found = ratio(measured["vllm"], measured["quaver"])
    return [Check("h", what, medians(measured), "s", found, ">=", 1.0, notes)]


def _follow_ups(plan: Plan, texts: Texts, clients: dict[str, httpx.Client]) -> list[Check]:
    """vLLM keeps recurrent states at the end of its blocks only, so its first follow-up may read all again."""
    tokens = plan.tokens(4096)
    bodies = [body(texts.state(tokens, "followed"), texts.questions(0, turn)) for turn in range(4)]
    ours, theirs = (
        [seconds(partial(posted, clients[engine], asked)) for asked in bodies] for engine in ("quaver", "vllm")
    )
    again = median(ours[1:])
    checks = []
    for which, taken, target in (("second", theirs[1], 10.0), ("third and fourth", median(theirs[2:]), 4.0)):
        what = f"the {which} three questions about a state of {tokens}"
        checks.append(Check("h", what, {"quaver": again, "vllm": taken}, "s", taken / again, ">=", target))
    return checks


def _rate(plan: Plan, texts: Texts, clients: dict[str, httpx.Client]) -> list[Check]:
    count = plan.count(48, least=CLIENTS)

    def sides(number: int) -> dict[str, Callable[[], object]]:
        bodies = mixed_bodies(texts, plan, count, f"vllm {number}")

        def turn(client: httpx.Client) -> Callable[[], object]:
            return lambda: list(threads.map(lambda asked: posted(client, asked), bodies))

        return {engine: turn(client) for engine, client in clients.items()}

    with ThreadPoolExecutor(CLIENTS) as threads:
        measured = in_turns(plan.rounds or 1, sides)
    rates = {engine: count / value for engine, value in medians(measured).items()}
    what = f"{count} requests of three questions, states of {plan.tokens(50)} to {plan.tokens(800)}, {CLIENTS} clients"
    found = ratio(measured["vllm"], measured["quaver"])
    return [Check("h", what, rates, "requests/s", found, ">=", 2.0, {"rounds": len(measured["vllm"])})]
