"""How fast the embedded model reads: ``python benchmarks/mini.py``.

Compares one question about a new state of 100 words with the matrix products that it cannot do
without, and with a second question about the same state. The products are those of the encoder's
layers over the very batches of windows, and of the head over its rows, in the same precision, timed
in the same run; attention scores, norms, activations, tokenising and Python are what remains.
With ``--ours URL --theirs URL`` two servers are asked by 8 clients instead.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import torch
from tokenizers import Tokenizer

from quaver.engine.split import SplitReader
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.models.encoder import groups, load_encoder
from quaver.prompts.split import SplitEncoded, SplitPrompt
from quaver.questions import Noul

EMBEDDED = Path(__file__).parent.parent / "quaver" / "embedded"
STORY = (
    "the customer wrote that her order arrived late and one of the lamps was broken but the support "
    "team answered within an hour offered a refund and sent a new one which works well so far"
)
FIRST, SECOND = Noul("Is the customer satisfied?"), Noul("Does the text mention a refund?")
Body = dict[str, object]


def state(rng: random.Random) -> str:
    """A state of 100 words that no cache holds."""
    return " ".join(rng.choices(STORY.split(), k=100))


def products(reader: SplitReader, encoded: SplitEncoded) -> Callable[[], None]:
    """The matrix products of reading ``encoded`` for the first time, on random numbers."""
    config, head = reader.encoder.bert.config, reader.head
    hidden, inner, width = config.hidden_size, config.intermediate_size, head.field_norm.normalized_shape[0]
    schema = [text for question in encoded.questions for text in (question.text, *question.options)]
    windows = [window for text in (encoded.state, *schema) for window in text]
    work: list[tuple[int, int, int]] = []
    for group in groups(windows, 4096):
        rows = len(group) * max(len(windows[i]) for i in group)
        layer = [(rows, hidden, hidden)] * 4 + [(rows, hidden, inner), (rows, inner, hidden)]
        work += layer * config.num_hidden_layers
    tokens = sum(map(len, encoded.state))
    options = sum(len(question.options) for question in encoded.questions)
    work += [(tokens, hidden, width), *[(tokens, width, 2 * width)] * (len(head.evidence_layers) + len(head.layers))]
    work += [(options, hidden, width)] * 3 + [(options, 4 * width, width)]
    dtype = reader.encoder.bert.dtype
    pairs = [(torch.randn(n, k, dtype=dtype), torch.randn(m, k, dtype=dtype)) for n, k, m in work]

    def multiply() -> None:
        for rows, weight in pairs:
            torch.nn.functional.linear(rows, weight)

    return multiply


def seconds(job: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def single(repeats: int) -> dict[str, float]:
    """Medians in milliseconds; the kinds of work alternate, so that a busy machine slows all alike."""
    prompt = SplitPrompt(Tokenizer.from_file(str(EMBEDDED / "tokenizer.json")))
    reader = SplitReader(load_encoder(EMBEDDED), load_joint_schema_head(EMBEDDED))
    rng = random.Random(0)
    taken: dict[str, list[float]] = {"products": [], "first": [], "second": [], "known": []}
    with torch.inference_mode():
        for _ in range(repeats):
            # Both schemas are unknown each time: a wording with a number was never read before.
            first = Noul(f"{FIRST.instructions} {rng.random()}"[:40])
            second = Noul(f"{SECOND.instructions} {rng.random()}"[:40])
            words = state(rng)
            multiply = products(reader, prompt.encode(words, [first]))
            taken["products"].append(seconds(multiply))
            taken["first"].append(seconds(lambda: reader.read(prompt.encode(words, [first]))))  # noqa: B023
            taken["second"].append(seconds(lambda: reader.read(prompt.encode(words, [second]))))  # noqa: B023
            taken["known"].append(seconds(lambda: reader.read(prompt.encode(words, [second]))))  # noqa: B023
    return {name: 1000 * statistics.median(values[len(values) // 5 :]) for name, values in taken.items()}


def load(url: str, clients: int, each: int) -> float:
    """Questions per second of a server at ``url`` that ``clients`` ask at once, a new state every time."""

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(each):
                question: Body = {"type": "noul", "instructions": FIRST.instructions}
                body: Body = {"model": "quaver-mini", "state": state(rng), "questions": {"q": question}}
                client.post("/v1/systemone", json=body).raise_for_status()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(1000, 1000 + clients)))
        began = time.perf_counter()
        list(pool.map(ask, range(clients)))
        return clients * each / (time.perf_counter() - began)


def main() -> None:
    """Prints one table and, as the last line, its numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ours", help="address of a server with the embedded model")
    parser.add_argument("--theirs", help="address of a server to compare with")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.ours and asked.theirs:
        found = {name: load(url, 8, asked.repeats) for name, url in (("ours", asked.ours), ("theirs", asked.theirs))}
        print("| server | questions per second, 8 clients |\n|---|---|")
        print("\n".join(f"| {name} | {value:.1f} |" for name, value in found.items()))
    else:
        found = single(asked.repeats)
        base, first = found["products"], found["first"]
        print("| work | ms | of the products | of the first question |\n|---|---|---|---|")
        for name, value in found.items():
            print(f"| {name} | {value:.1f} | {value / base:.2f} | {value / first:.2f} |")
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
