"""Trains the encoder's upper layers and the head together; everything follows from one seed.

The prior (cosine of option and state) is the encoder's zero-shot ability. To keep it, word vectors
and the lower layers stay frozen, and on topical texts the vectors are pulled to the untrained
encoder's.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

from quaver.heads.checkpoint import load_joint_schema_head
from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.encoder import load_encoder
from quaver.train import release
from quaver.train.losses import Model, step_losses, weighted
from quaver.train.mixture import Mixture
from quaver.train.tuned import TunedEncoder

HEAD = {"hidden_size": 384, "width": 192, "routing_layers": 2, "layers": 1, "heads": 6, "feedforward": 384}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides the result besides the data."""

    steps: int = 900
    seed: int = 20
    encoder_rate: float = 1e-4
    head_rate: float = 1e-3
    warmup: float = 0.06
    decay: float = 0.01
    frozen_layers: int = 3
    keep: float = 2.0
    hush: float = 0.0


#: First the tasks are learned; then, with small steps, the residual learns to leave topics to the prior.
STAGES = (Plan(), Plan(steps=150, seed=21, encoder_rate=3e-5, head_rate=3e-4, hush=0.1))


def start(base: Path, plan: Plan) -> Model:
    """The packaged encoder with a fresh head whose prior already decides and whose residual starts small."""
    torch.manual_seed(plan.seed)
    trained = load_encoder(base)
    head = JointSchemaHead(**HEAD)
    with torch.no_grad():
        head.prior_logit_scale.fill_(math.log(15.0))
        nn.init.normal_(head.type_embedding.weight, std=0.02)
        for parameter in head.residual_scorer[-1].parameters():
            nn.init.zeros_(parameter)
    encoder = TunedEncoder(trained, load_encoder(base), plan.frozen_layers)
    return Model(encoder, head, release.open_prompt(base))


def resume(folder: Path, base: Path, plan: Plan) -> Model:
    """The release in ``folder``, to be trained on."""
    encoder = TunedEncoder(load_encoder(folder), load_encoder(base), plan.frozen_layers)
    head = load_joint_schema_head(folder).requires_grad_(True)
    return Model(encoder, head, release.open_prompt(folder))


def train(model: Model, mixture: Mixture, plan: Plan, log: Path) -> None:
    """Runs ``plan.steps`` steps and writes adds one line of JSON per 25 of them to ``log``."""
    optimiser = _optimiser(model, plan)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, plan))
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    began, seen = time.perf_counter(), defaultdict[str, list[float]](list)
    with log.open("a") as file:
        file.write(json.dumps({"plan": asdict(plan), "head": HEAD}) + "\n")
        for step in range(plan.steps):
            examples = mixture.draw(plan.seed * 1_000_003 + step)
            found = step_losses(model, examples)
            total = weighted(examples, found.answers) + plan.keep * found.drift + plan.hush * found.residual
            torch.autograd.backward(total)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            schedule.step()
            for example, loss in zip(examples, found.answers.tolist(), strict=True):
                seen[example.family].append(loss)
            if (step + 1) % 25 == 0:
                entry = {"step": step + 1, "seconds": round(time.perf_counter() - began)}
                apart = {"drift": round(found.drift.item(), 4), "residual": round(found.residual.item(), 4)}
                means = {family: round(fmean(values), 4) for family, values in sorted(seen.items())}
                file.write(json.dumps({**entry, **apart, "loss": means}) + "\n")
                file.flush()
                seen.clear()


def _optimiser(model: Model, plan: Plan) -> torch.optim.AdamW:
    encoder = [p for p in model.encoder.parameters() if p.requires_grad]
    head = list(model.head.parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for p in encoder if p.ndim > 1], "lr": plan.encoder_rate, "weight_decay": plan.decay},
            {"params": [p for p in encoder if p.ndim < 2], "lr": plan.encoder_rate, "weight_decay": 0.0},
            {"params": [p for p in head if p.ndim > 1], "lr": plan.head_rate, "weight_decay": plan.decay},
            {"params": [p for p in head if p.ndim < 2], "lr": plan.head_rate, "weight_decay": 0.0},
        ]
    )


def _rate(step: int, plan: Plan) -> float:
    """Linear warm-up, then half a cosine to zero."""
    warm = plan.warmup * plan.steps
    if step < warm:
        return (step + 1) / (warm + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (plan.steps - warm)))
