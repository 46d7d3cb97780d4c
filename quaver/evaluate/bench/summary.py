"""Blocks of requests to the numbers that people compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from quaver.evaluate.bench.load import Block, Load


def summarise(load: Load, blocks: Sequence[Block]) -> dict[str, Any]:
    """Times in seconds of answered requests, rates per second of wall time, ``cached_share`` of input tokens.

    ``per_second_blocks`` are the rates of each block: their spread is the noise of the machine. A large
    ``lag_p99`` says that the generator itself was late, and the times with it.
    """
    samples = [sample for block in blocks for sample in block.samples]
    good = [sample for sample in samples if sample.error is None]
    wall = sum(block.wall for block in blocks)
    tokens = sum(sample.input_tokens for sample in good)
    return {
        "load": {"mode": type(load).__name__.lower(), **asdict(load)},
        "requests": len(samples),
        "ok": len(good),
        "errors": dict(Counter(sample.error for sample in samples if sample.error).most_common()),
        "seconds": percentiles([sample.seconds for sample in good]),
        "lag_p99": float(np.percentile([sample.lag for sample in samples], 99)) if samples else None,
        "per_second": len(good) / wall if wall else None,
        "per_second_blocks": [sum(s.error is None for s in b.samples) / b.wall for b in blocks if b.wall],
        "tokens_per_second": tokens / wall if wall else None,
        "cached_share": sum(sample.cached_tokens for sample in good) / tokens if tokens else None,
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p95, p99, mean and max; None when nothing was answered."""
    if not seconds:
        return dict.fromkeys(("p50", "p95", "p99", "mean", "max"))
    p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
    return {
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "mean": float(np.mean(seconds)),
        "max": max(seconds),
    }
