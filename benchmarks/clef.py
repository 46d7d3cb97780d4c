"""One text record through Quaver and through the Clef reference, in turns, in one run.

The model is the tiny clef-flash release of the tests, widened to about 100 M random parameters, in
float32 on the CPU. Both sides start from the request's body and end with its answers; neither has a
server in front, each has a thread of its own. Ours keeps no state between rounds.
Needs what ``scripts/test`` installs. Prints a table, then one line of JSON.

    .venv/bin/python benchmarks/clef.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from clef_finetune._vendor import joint_schema_model as reference
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen3_5Config, Qwen3_5ForConditionalGeneration

import quaver
from quaver.heads.joint_schema import JointSchemaHead

TINY = Path(__file__).parents[1] / "tests/golden/clef-flash-tiny"
SIZES = {
    "hidden_size": 1280,
    "intermediate_size": 3584,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 96,
}
HEAD = {"hidden_size": 1280, "width": 512, "routing_layers": 2, "layers": 2, "heads": 8, "feedforward": 1024}
BODY: dict[str, Any] = {
    "model": "clef",
    "state": "The pump in hall two was serviced on Monday and has been loud since Tuesday night.",
    "questions": {
        "urgent": {"type": "noul", "instructions": "Does somebody have to look at this today?"},
        "team": {
            "type": "choice",
            "instructions": "Who should get this report?",
            "criteria": {"mechanics": "Moving parts", "electrics": "Power and control", "cleaning": None},
        },
        "risk": {"type": "score", "instructions": "How risky is it?", "criteria": ["none", "some", "high"]},
    },
}


def build(folder: Path) -> int:
    """A wider release in ``folder``; the number of its parameters."""
    torch.manual_seed(20261130)
    for name in ("tokenizer.json", "tokenizer_config.json", "processor_config.json"):
        shutil.copy(TINY / name, folder / name)
    config = json.loads((TINY / "config.json").read_text())
    config["text_config"] |= SIZES
    config["vision_config"]["out_hidden_size"] = SIZES["hidden_size"]
    backbone = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**config))
    backbone.save_pretrained(folder)
    head = JointSchemaHead(**HEAD)
    save_file(head.state_dict(), folder / "joint_head.safetensors")
    (folder / "joint_head_config.json").write_text(json.dumps(HEAD))
    return sum(parameter.numel() for model in (backbone, head) for parameter in model.parameters())


def quaver_side(folder: Path) -> Callable[[], dict[str, Any]]:
    # Every round reads the record anew, in one step as the reference does.
    decider = quaver.load(str(folder), device="cpu", dtype="float32", state_cache_bytes=0, step_tokens=4096)
    return lambda: decider.systemone(BODY)


def reference_side(folder: Path) -> Callable[[], dict[str, Any]]:
    backbone = Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    head = reference.JointSchemaHead(**HEAD)
    head.load_state_dict(load_file(folder / "joint_head.safetensors"))
    model = reference.ClefModel(backbone, head).eval()
    # For text the reference asks its processor only for the tokenizer.
    processor = SimpleNamespace(tokenizer=AutoTokenizer.from_pretrained(folder))
    return lambda: reference.systemone(model, processor, BODY)


def in_thread(side: Callable[[], Any]) -> Callable[[], Any]:
    pool = ThreadPoolExecutor(1)
    return lambda: pool.submit(side).result()


def measure(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every round; the order within a round alternates so that neither side is always first."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        for _ in range(3):
            side()
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            sides[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds, each with both sides")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = build(folder)
        sides = {
            "quaver": quaver_side(folder),
            "reference": in_thread(reference_side(folder)),
        }
        ours, theirs = sides["quaver"](), sides["reference"]()
        difference = abs(ours["answers"]["urgent"]["noul"] - theirs["answers"]["urgent"]["noul"])
        seconds = measure(sides, rounds)
    tokens = theirs["usage"]["input_tokens"]
    medians = {side: median(values) for side, values in seconds.items()}
    ratio = median(a / b for a, b in zip(seconds["quaver"], seconds["reference"], strict=True))
    print(f"{parameters / 1e6:.0f} M parameters, {tokens} tokens, 3 questions, {torch.get_num_threads()} threads")
    print(f"{'side':<10} {'median':>9} {'fastest':>9}")
    for side, values in seconds.items():
        print(f"{side:<10} {medians[side] * 1e3:>6.1f} ms {min(values) * 1e3:>6.1f} ms")
    print(f"quaver takes {ratio:.3f} of the reference's time (median of {rounds} rounds)")
    result = {"benchmark": "clef", "parameters": parameters, "tokens": tokens, "rounds": rounds}
    print(json.dumps(result | {"median_seconds": medians, "ratio": ratio, "difference": difference}))


if __name__ == "__main__":
    main()
