"""Trains and calibrates ``quaver-mini``: ``python -m quaver.train --data FOLDER --out FOLDER``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from quaver.train import calibrate, fit, mixture, release, sources


def main() -> None:
    """Command line: fetch, train stage by stage, write the release after each, fit its temperatures."""
    parser = argparse.ArgumentParser(prog="quaver.train", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder for the fetched packages")
    parser.add_argument("--out", type=Path, required=True, help="release folder to write")
    parser.add_argument("--from-stage", type=int, default=0, help="go on with the release in --out at this stage")
    asked = parser.parse_args()
    # One thread: sums then have one order on every machine, and many small operations gain nothing from two.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sources.fetch(asked.data)
    base, items = release.base(asked.data), mixture.load(asked.data, "train")
    asked.out.mkdir(parents=True, exist_ok=True)
    log = asked.out / "training-log.jsonl"
    if asked.from_stage == 0:
        log.unlink(missing_ok=True)
    for stage, plan in enumerate(fit.STAGES):
        if stage >= asked.from_stage:
            # A later stage starts from the written release, so that it can be run alone to the same end.
            model = fit.resume(asked.out, base, plan) if stage else fit.start(base, plan)
            fit.train(model, items, plan, log)
            release.write(asked.out, model.encoder.encoder, model.head, fit.HEAD, base)
    release.set_temperatures(asked.out, calibrate.fit(*release.open_reader(asked.out), asked.data))


if __name__ == "__main__":
    main()
