"""Trains the encoder's upper layers and the head together; everything follows from one seed.

The prior (cosine of option and state) is the encoder's zero-shot ability. To keep it, word vectors
and the lower layers stay frozen, and on topical texts the vectors are pulled to the untrained
encoder's.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.encoder import load_encoder
from quaver.prompts.split import SplitPrompt, SplitQuestion, Text
from quaver.train import batched
from quaver.train.examples import Example
from quaver.train.mixture import Mixture
from quaver.train.tuned import TunedEncoder

HEAD = {"hidden_size": 384, "width": 192, "routing_layers": 2, "layers": 1, "heads": 6, "feedforward": 384}


#: Share of a family in the loss, beside 1 for all others.
WEIGHTS = {"sentiment-noul": 4.0, "sentiment-graded": 4.0, "spam-noul": 2.0}


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


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained, and how texts become tokens."""

    encoder: TunedEncoder
    head: JointSchemaHead
    prompt: SplitPrompt


def start(folder: Path, plan: Plan) -> Model:
    """The packaged encoder with a fresh head whose prior already decides and whose residual starts small."""
    torch.manual_seed(plan.seed)
    encoder = TunedEncoder(load_encoder(folder), plan.frozen_layers)
    head = JointSchemaHead(**HEAD)
    with torch.no_grad():
        head.prior_logit_scale.fill_(math.log(15.0))
        head.type_embedding.weight.normal_(std=0.02)
        head.residual_scorer[3].weight.zero_()
        head.residual_scorer[3].bias.zero_()
    return Model(encoder, head, SplitPrompt(Tokenizer.from_file(str(folder / "tokenizer.json"))))


def train(model: Model, mixture: Mixture, plan: Plan, log: Path) -> None:
    """Runs ``plan.steps`` steps and writes one line of JSON per 25 of them to ``log``."""
    optimiser = _optimiser(model, plan)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, plan))
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    began, sums, counts = time.perf_counter(), {}, {}
    with log.open("w") as file:
        file.write(json.dumps({"plan": asdict(plan), "head": HEAD}) + "\n")
        for step in range(plan.steps):
            examples = mixture.draw(plan.seed * 1_000_003 + step)
            losses, away = step_losses(model, examples)
            (weighted(examples, losses) + plan.keep * away).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            schedule.step()
            for example, loss in zip(examples, losses.tolist(), strict=True):
                sums[example.family] = sums.get(example.family, 0.0) + loss
                counts[example.family] = counts.get(example.family, 0) + 1
            if (step + 1) % 25 == 0:
                means = {family: round(sums[family] / counts[family], 4) for family in sorted(sums)}
                entry = {
                    "step": step + 1,
                    "seconds": round(time.perf_counter() - began),
                    "drift": round(away.item(), 4),
                }
                file.write(json.dumps({**entry, "loss": means}) + "\n")
                file.flush()
                sums, counts = {}, {}


def weighted(examples: list[Example], losses: Tensor) -> Tensor:
    """Mean loss of families, each by its weight, however many examples it has; ()."""
    counts = Counter(example.family for example in examples)
    total = sum(WEIGHTS.get(family, 1.0) for family in counts)
    shares = [WEIGHTS.get(example.family, 1.0) / counts[example.family] / total for example in examples]
    return losses @ torch.tensor(shares)


def step_losses(model: Model, examples: list[Example]) -> tuple[Tensor, Tensor]:
    """Divergence of each answer from its target [N], and the drift of topical vectors from the untrained encoder's."""
    encoded = [model.prompt.encode(example.state, [example.question]) for example in examples]
    states, questions = [one.state for one in encoded], [one.questions[0] for one in encoded]
    with torch.autocast("cpu", torch.bfloat16):
        texts = batched.read_texts(model.encoder, all_texts(states, questions))
        scores = _by_length(model.head, texts, states, questions)
    target = torch.zeros_like(scores)
    for row, example in enumerate(examples):
        target[row, : len(example.target)] = torch.tensor(example.target)
    # The target's own entropy is taken off, so that 0 is perfect and families can be compared.
    losses = -(target * (scores.log_softmax(-1) - target.clamp(min=1e-9).log())).sum(-1)
    topical = [i for i, example in enumerate(examples) if example.topical]
    anchored = list(dict.fromkeys(text for i in topical for text in (states[i], *questions[i].options)))
    wanted = model.encoder.original_vectors(anchored)
    return losses, (1 - functional.cosine_similarity(texts.mean(texts.flat)[texts.of(anchored)], wanted, dim=-1)).mean()


def _by_length(
    head: JointSchemaHead, texts: batched.TextRows, states: list[Text], questions: list[SplitQuestion]
) -> Tensor:
    """Logits [N, O] in the given order, short and long states apart, so that little of the work is padding."""
    order = sorted(range(len(states)), key=lambda i: sum(map(len, states[i])))
    cut = len(order) * 2 // 3
    parts = []
    for rows in (order[:cut], order[cut:]):
        parts.append(batched.logits(head, texts, [states[i] for i in rows], [questions[i] for i in rows]))
    widest = max(part.shape[1] for part in parts)
    joined = torch.cat([functional.pad(part, (0, widest - part.shape[1]), value=-1e4) for part in parts])
    return joined[torch.tensor(order).argsort()]


def all_texts(states: list[Text], questions: list[SplitQuestion]) -> list[Text]:
    """Every text of a batch, repeats included."""
    return [*states, *(text for question in questions for text in (question.text, *question.options))]


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
