"""Trains and calibrates ``quaver-mini`` from public packages."""

from __future__ import annotations

from pathlib import Path

import torch

from quaver.train import calibrate, fit, mixture, release, sources


def train(data: Path, out: Path, from_stage: int = 0) -> None:
    """Fetch what ``data`` lacks, train stage by stage, write the release in ``out`` after each, fit its temperatures.

    A later stage starts from the written release, so that ``from_stage`` can run it alone to the same end.
    """
    # One thread: sums then have one order on every machine, and many small operations gain nothing from two.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sources.fetch(data)
    base, items = release.base(data), mixture.load(data, "train")
    out.mkdir(parents=True, exist_ok=True)
    log = out / "training-log.jsonl"
    if from_stage == 0:
        log.unlink(missing_ok=True)
    for stage, plan in enumerate(fit.STAGES):
        if stage >= from_stage:
            model = fit.resume(out, base, plan) if stage else fit.start(base, plan)
            fit.train(model, items, plan, log)
            release.write(out, model.encoder.encoder, model.head, fit.HEAD, base)
    release.set_temperatures(out, calibrate.fit(*release.open_reader(out), data))
