"""Label reads through the engine against a straight computation of transformers on the same tokens."""

from __future__ import annotations

import random

import pytest
import torch
from chat_families import FAMILIES, tiny_chat

from quaver.engine.causal import CausalPrompt, CausalReader, Record
from quaver.engine.job import Reading
from quaver.engine.label import LabelHead
from quaver.models.chat import ChatBackbone
from quaver.prompts.label_encoded import LabelPlace

LABELS = ((7,), (9, 10), (150,))


def place(length: int, seed: int) -> LabelPlace:
    """A state that all seeds share, then a question of their own."""
    state = random.Random(0).choices(range(200), k=length)
    return LabelPlace((*state, *random.Random(seed).choices(range(200), k=9)), len(state), LABELS)


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_a_softmax_over_the_models_own_logits(family: str) -> None:
    model, places = tiny_chat(family), [place(length, length) for length in (30, 3, 30)]
    with torch.inference_mode():
        own = [model(input_ids=torch.tensor([one.ids])).logits[0, -1].double().softmax(-1) for one in places]
    backbone = ChatBackbone(model)
    reader = CausalReader(backbone, LabelHead(backbone.output_embeddings, backbone.softcap), 1 << 22)
    under_way = [reader.open(CausalPrompt(one, backbone.prepare(one.ids))) for one in places]
    reader.step([(progress, 20) for progress in under_way if progress.remaining > 20])
    readings = reader.step([(progress, progress.remaining) for progress in under_way]).outcomes
    for whole, reading in zip(own, readings, strict=True):
        assert isinstance(reading, Reading)
        [read] = reading.labels
        held = [float(whole[list(tokens)].sum()) for tokens in LABELS]
        assert read.label_mass == pytest.approx(sum(held), rel=1e-3)
        assert read.probabilities == pytest.approx([p / sum(held) for p in held], abs=2e-5)
        assert read.argmax_is_label == (int(whole.argmax()) in {7, 9, 10, 150})
        assert reading.logits[0].softmax(-1).tolist() == pytest.approx(read.probabilities, abs=1e-12)


def test_tables_of_low_precision_are_read_in_float32() -> None:
    """The product of a bfloat16 table is not rounded to bfloat16 again, of whatever size the table is."""
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(40_000, 16, generator=generator).bfloat16()
    row = torch.randn(16, generator=generator).bfloat16()
    head = LabelHead(table)
    one = LabelPlace((1, 2), 1, ((5,), (39_999,)))
    [read] = head.read([Record(one, torch.empty(2, 0), row[None])])
    expected = torch.log_softmax(table.double() @ row.double(), -1)[[5, 39_999]]
    assert read.labels[0].log_probabilities == pytest.approx(expected.tolist(), abs=1e-5)
