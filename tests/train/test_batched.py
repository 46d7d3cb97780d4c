"""The padded pass that training uses gives what the head gives for one record."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from quaver.heads.joint_schema import HeadInput, JointSchemaHead
from quaver.prompts.split import SplitQuestion, Text
from quaver.train import batched

HIDDEN, TOLERANCE = 16, 1e-5


def _text(rng: random.Random) -> Text:
    windows = rng.choice([1, 1, 2])
    return tuple(tuple(rng.randint(1, 99) for _ in range(rng.randint(1, 9))) for _ in range(windows))


def _encoder(table: Tensor) -> batched.RowsOf:
    return lambda windows: table[[token for window in windows for token in window]]


def test_a_padded_batch_equals_one_record_after_another() -> None:
    rng = random.Random(3)
    torch.manual_seed(3)
    head = JointSchemaHead(HIDDEN, width=8, routing_layers=2, layers=1, heads=2, feedforward=12)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    table = torch.randn(100, HIDDEN)
    states = [_text(rng) for _ in range(4)] * 2
    questions = [
        SplitQuestion(i % 3, _text(rng), tuple(_text(rng) for _ in range(rng.randint(1, 5)))) for i in range(8)
    ]
    texts = [*states, *(text for q in questions for text in (q.text, *q.options))]
    prior, joint = batched.logits(head, batched.read_texts(_encoder(table), texts), states, questions)
    got = prior + joint
    for row, (state, question) in enumerate(zip(states, questions, strict=True)):
        (expected,) = head([_one(head, table, state, question)], alone=True)
        torch.testing.assert_close(got[row, : len(expected)], expected, rtol=0, atol=TOLERANCE)
        assert bool((got[row, len(expected) :] < -9e3).all())


def _one(head: JointSchemaHead, table: Tensor, state: Text, question: SplitQuestion) -> HeadInput:
    def rows(text: Text) -> Tensor:
        return table[[token for window in text for token in window]]

    return HeadInput(
        memory=head.project_memory(head.normalise(rows(state))),
        question=head.normalise(rows(question.text)).mean(0, keepdim=True),
        context=torch.stack([head.normalise(rows(option)).mean(0) for option in question.options]),
        lexical=torch.stack([rows(option).mean(0) for option in question.options]),
        summary=head.normalise(rows(state)).mean(0),
        anchor=rows(state).mean(0, keepdim=True),
        types=torch.tensor([question.type]),
        owner=torch.zeros(len(question.options), dtype=torch.long),
    )
