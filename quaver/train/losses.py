"""What one training step has to lower: wrong answers, drift of topical vectors, and a residual that says too much."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from quaver.heads.joint_schema import JointSchemaHead
from quaver.prompts.split import SplitPrompt, SplitQuestion, Text
from quaver.train import batched
from quaver.train.examples import Example
from quaver.train.tuned import TunedEncoder

#: Share of a family in the loss, beside 1 for all others.
WEIGHTS = {"sentiment-noul": 4.0, "sentiment-graded": 4.0, "spam-noul": 2.0}


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained, and how texts become tokens."""

    encoder: TunedEncoder
    head: JointSchemaHead
    prompt: SplitPrompt


@dataclass(frozen=True, slots=True)
class Losses:
    """What one step has to lower."""

    answers: Tensor  # [N], divergence of each answer from its target
    drift: Tensor  # (), cosine distance of topical vectors from the untrained encoder's
    residual: Tensor  # (), variance of the residual over the options of topical choices


def step_losses(model: Model, examples: list[Example]) -> Losses:
    """One forward pass over all examples."""
    encoded = [model.prompt.encode(example.state, [example.question]) for example in examples]
    states, questions = [one.state for one in encoded], [one.questions[0] for one in encoded]
    with torch.autocast("cpu", torch.bfloat16):
        texts = batched.read_texts(model.encoder, all_texts(states, questions))
        prior, joint = _by_length(model.head, texts, states, questions)
    scores = prior + joint
    target = torch.zeros_like(scores)
    for row, example in enumerate(examples):
        target[row, : len(example.target)] = torch.tensor(example.target)
    # The target's own entropy is taken off, so that 0 is perfect and families can be compared.
    losses = -(target * (scores.log_softmax(-1) - target.clamp(min=1e-9).log())).sum(-1)
    topical = [i for i, example in enumerate(examples) if example.topical]
    anchored = list(dict.fromkeys(text for i in topical for text in (states[i], *questions[i].options)))
    wanted = model.encoder.original_vectors(anchored)
    away = (1 - functional.cosine_similarity(texts.mean(texts.flat)[texts.of(anchored)], wanted, dim=-1)).mean()
    loud = torch.stack([joint[i, : len(questions[i].options)].var(unbiased=False) for i in topical]).mean()
    return Losses(losses, away, loud)


def _by_length(
    head: JointSchemaHead, texts: batched.TextRows, states: list[Text], questions: list[SplitQuestion]
) -> tuple[Tensor, Tensor]:
    """``batched.logits`` in the given order, short and long states apart, so that little of the work is padding."""
    order = sorted(range(len(states)), key=lambda i: sum(map(len, states[i])))
    cut = len(order) * 2 // 3
    parts = [
        batched.logits(head, texts, [states[i] for i in rows], [questions[i] for i in rows])
        for rows in (order[:cut], order[cut:])
    ]
    widest = max(prior.shape[1] for prior, _ in parts)
    back = torch.tensor(order).argsort()
    prior, joint = (
        torch.cat([functional.pad(part, (0, widest - part.shape[1]), value=empty) for part in side])[back]
        for side, empty in zip(zip(*parts, strict=True), (-1e4, 0.0), strict=True)
    )
    return prior, joint


def all_texts(states: list[Text], questions: list[SplitQuestion]) -> list[Text]:
    """Every text of a batch, repeats included."""
    return [*states, *(text for question in questions for text in (question.text, *question.options))]


def weighted(examples: list[Example], losses: Tensor) -> Tensor:
    """Mean loss of families, each by its weight, however many examples it has; ()."""
    counts = Counter(example.family for example in examples)
    total = sum(WEIGHTS.get(family, 1.0) for family in counts)
    shares = [WEIGHTS.get(example.family, 1.0) / counts[example.family] / total for example in examples]
    return losses @ torch.tensor(shares)
