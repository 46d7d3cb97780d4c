"""Rows c and f: a state that nobody knows, beside transformers, the machine's peak and the bare backbone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from engine_report import Check
from engine_sides import CACHE_BYTES, Plan
from engine_texts import Texts
from engine_timing import in_turns, matrix_peak, medians, ratio

from quaver.engine import Engine, Policy
from quaver.engine.causal import CausalPrompt, CausalReader
from quaver.engine.joint import JointHead
from quaver.models.clef import load_clef
from quaver.models.placement import in_a_thread_that_ends, step_tokens
from quaver.models.release import inspect
from quaver.models.wide_linear import multiplies_bfloat16
from quaver.prompts.encoded import Encoded


def cold_state(plan: Plan) -> list[Check]:
    """Row c: a whole request of ours beside transformers' forward without any head."""
    texts, tokens = Texts(plan.hybrid), plan.tokens(2048)
    ids = texts.encoded(texts.sized(tokens, 0)).ids
    with plan.decider(plan.hybrid) as decider, plan.reference(plan.hybrid) as reference:
        decider.systemone(texts.sized(128, "warm-up"))
        reference.forward(ids[:128])

        def sides(number: int) -> dict[str, Callable[[], object]]:
            asked = texts.sized(tokens, number)
            peaks.append(in_a_thread_that_ends(lambda: matrix_peak(precision)))
            return {
                "quaver": lambda: decider.systemone(asked),
                "transformers": lambda: reference.forward(texts.encoded(asked).ids),
            }

        peaks: list[float] = []
        # Without instructions for it, bfloat16 has no peak of its own that anything could reach.
        precision = torch.float32 if not multiplies_bfloat16() else getattr(torch, plan.dtype)
        measured = in_turns(plan.rounds or 3, sides)
        flops = reference.flops(len(ids))
    figures, peak = medians(measured), max(peaks)
    speed = flops / figures["quaver"]
    what = f"{len(ids)} tokens cold, {plan.dtype}"
    faster = ratio(measured["transformers"], measured["quaver"])
    return [
        Check("c", what, figures, "s", faster, ">=", 1.6, {"tokens": len(ids), "rounds": len(peaks)}),
        Check(
            "c",
            f"{what}, share of the peak of matrix products",
            {"quaver": speed / 1e9, "transformers": flops / figures["transformers"] / 1e9, "peak": peak / 1e9},
            "GFLOP/s",
            speed / peak,
            ">=",
            0.75,
        ),
    ]


def overhead(plan: Plan) -> list[Check]:
    """Row f: queue, scheduler, parts, head and keeping the state, over one forward of the bare backbone."""
    sizes = ((plan.tokens(2048), 0.05), (plan.tokens(128), 0.15))
    return [_overhead(plan, folder, *size) for folder in (plan.hybrid, plan.dense) for size in sizes]


def _overhead(plan: Plan, folder: Path, tokens: int, target: float) -> Check:
    def reader() -> CausalReader[Encoded]:
        backbone = load_clef(inspect(folder), "cpu", plan.dtype).backbone
        return CausalReader(backbone, JointHead.load(folder, backbone), CACHE_BYTES)

    texts, ours = Texts(folder), in_a_thread_that_ends(reader)
    step, together = step_tokens(ours.backbone.device)
    encoded = texts.encoded(texts.sized(tokens, 0))
    inputs = ours.backbone.prepare(encoded.ids)
    engine = Engine(ours, Policy(step, together=together))
    with plan.bare(folder) as bare:

        def sides(number: int) -> dict[str, Callable[[], object]]:
            # Another salt is another state to the cache.
            prompt = CausalPrompt(encoded, inputs, salt=str(number))
            return {
                "engine": lambda: engine.submit([prompt]).result(),
                "backbone": lambda: bare.forward(encoded.ids),
            }

        in_turns(1, lambda _: sides(-1))
        measured = in_turns(plan.rounds or (3 if tokens > 1000 else 15), sides)
    engine.close()
    added = ratio(measured["engine"], measured["backbone"]) - 1.0
    what = f"what the engine adds to a bare forward of {len(inputs)} tokens, {folder.name}"
    return Check("f", what, medians(measured), "s", added, "<=", target, {"rounds": len(measured["engine"])})
