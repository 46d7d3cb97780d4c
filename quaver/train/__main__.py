"""Trains and calibrates ``quaver-mini``: ``python -m quaver.train --data FOLDER --out FOLDER``."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import torch

from quaver.train import calibrate, fit, mixture, release, sources
from quaver.train.fit import Plan


def main() -> None:
    """Command line: fetch, train, write the release, fit its temperatures."""
    parser = argparse.ArgumentParser(prog="quaver.train", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder for the fetched packages")
    parser.add_argument("--out", type=Path, required=True, help="release folder to write")
    for field in fields(Plan):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    asked = vars(parser.parse_args())
    data, out = asked.pop("data"), asked.pop("out")
    # One thread: sums then have one order on every machine, and many small operations gain nothing from two.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sources.fetch(data)
    source = release.base(data)
    plan = Plan(**asked)
    model = fit.start(source, plan)
    out.mkdir(parents=True, exist_ok=True)
    fit.train(model, mixture.load(data, "train"), plan, out / "training-log.jsonl")
    release.write(out, model.encoder.encoder, model.head, fit.HEAD, source)
    prompt, reader = release.open_reader(out)
    release.set_temperatures(out, calibrate.fit(prompt, reader, data))


if __name__ == "__main__":
    main()
