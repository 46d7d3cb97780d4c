"""The engine beside the Clef reference, transformers, vLLM and its own promises: one row per letter, a to h.

Rows a to g run in this process on the CPU, without a server in front, in float32 where the CPU has no
bfloat16 products; row h starts servers, where ``scripts/environment vllm`` has made an environment for vLLM.
``checkpoints.py`` makes the releases. Rows a to g at full size take more than an hour on two cores.
Needs what ``scripts/test`` installs. Prints every row as it is measured, the table, then one line of JSON.

    .venv/bin/python benchmarks/engine.py [--rows a,c] [--rounds N] [--scale 0.25] [--dtype bfloat16] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from checkpoints import TINY, checkpoint
from engine_cold import cold_state, overhead
from engine_load import beside_a_giant, many_clients
from engine_report import Check, report
from engine_reuse import growing_state, second_questions
from engine_sides import Plan
from engine_soak import soak
from engine_vllm import beside_vllm
from serving import python

from quaver.models.wide_linear import multiplies_bfloat16

ROWS: dict[str, Callable[[Plan], list[Check]]] = {
    "a": second_questions,
    "b": growing_state,
    "c": cold_state,
    "d": many_clients,
    "e": beside_a_giant,
    "f": overhead,
    "g": soak,
    "h": beside_vllm,
}
#: With which --tiny runs all rows in less than a minute; it shows that they run and nothing else.
TINY_SCALE = 1 / 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", help="letters of the rows to run, with commas between them; all that can run here")
    parser.add_argument("--rounds", type=int, help="rounds of every row instead of its own number")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes and counts")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="instead of what suits the CPU")
    parser.add_argument("--tiny", action="store_true", help="a short run on the release of the tests")
    arguments = parser.parse_args()
    # vLLM's kernels take no model as small as the tests' release.
    possible = [row for row in ROWS if row != "h" or (python("vllm") and not arguments.tiny)]
    rows = arguments.rows.split(",") if arguments.rows else possible
    if unknown := set(rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    dtype = arguments.dtype or ("bfloat16" if multiplies_bfloat16() else "float32")
    if arguments.tiny:
        plan = Plan(TINY, TINY, TINY, dtype, TINY_SCALE, rounds=1)
    else:
        hybrid, dense = checkpoint("hybrid-0.5b"), checkpoint("dense-0.1b")
        plan = Plan(hybrid, dense, TINY, dtype, arguments.scale, arguments.rounds)
    checks: list[Check] = []
    for row in rows:
        checks += (found := ROWS[row](plan))
        print(*(check.line for check in found), sep="\n", file=sys.stderr, flush=True)
    report(
        {"dtype": dtype, "threads": torch.get_num_threads(), "torch": torch.__version__, "scale": plan.scale}, checks
    )


if __name__ == "__main__":
    main()
