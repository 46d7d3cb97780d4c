"""One text record through Quaver and through the Clef reference, in turns, in one run.

The model is the tiny clef-flash release of the tests, widened to about 100 M random parameters, in
float32 on the CPU. Both sides start from the request's body and end with its answers; neither has a
server in front, each has a thread of its own, and ours is prepared as the engine prepares its thread.
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

from quaver.engine.joint import JointReader
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.heads.joint_schema import JointSchemaHead
from quaver.heads.scoring import probabilities
from quaver.models.clef import load_clef
from quaver.models.placement import prepare_thread
from quaver.models.release import inspect
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Answer, Choice, Noul, Request, Score, answer

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
KINDS: dict[str, Callable[..., Any]] = {"noul": Noul, "choice": Choice, "score": Score}
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


def quaver_side(folder: Path) -> Callable[[], dict[str, Answer]]:
    info = inspect(folder)
    release = load_clef(info, "cpu", "float32")
    reader = JointReader(release.backbone, load_joint_schema_head(folder))
    prompt = ClefPrompt(PromptTokenizer(info.tokenizer_file), release.max_length)

    def run() -> dict[str, Answer]:
        questions = {
            name: KINDS[body["type"]](**{key: value for key, value in body.items() if key != "type"})
            for name, body in BODY["questions"].items()
        }
        encoded = prompt.encode(Request(BODY["state"], questions))
        answers = {}
        for (name, question), logits, read in zip(
            questions.items(), reader.read(encoded), encoded.questions, strict=True
        ):
            by_option = dict(zip(read.option_ids, probabilities(logits), strict=True))
            answers[name] = answer(question, [by_option[option] for option in question.option_ids])
        return answers

    return run


def reference_side(folder: Path) -> Callable[[], dict[str, Any]]:
    backbone = Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    head = reference.JointSchemaHead(**HEAD)
    head.load_state_dict(load_file(folder / "joint_head.safetensors"))
    model = reference.ClefModel(backbone, head).eval()
    # For text the reference asks its processor only for the tokenizer.
    processor = SimpleNamespace(tokenizer=AutoTokenizer.from_pretrained(folder))
    return lambda: reference.systemone(model, processor, BODY)


def in_thread(side: Callable[[], Any], prepare: Callable[[], None] | None = None) -> Callable[[], Any]:
    pool = ThreadPoolExecutor(1, initializer=prepare)
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
            "quaver": in_thread(quaver_side(folder), prepare_thread),
            "reference": in_thread(reference_side(folder)),
        }
        ours, theirs = sides["quaver"](), sides["reference"]()
        difference = abs(ours["urgent"].probability - theirs["answers"]["urgent"]["noul"])
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
