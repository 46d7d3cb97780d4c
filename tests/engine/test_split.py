"""The split read: caches, order, neighbours and length change nothing that they should not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertModel

from quaver.engine.split import Cache, SplitReader, TextRows
from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.encoder import Encoder
from quaver.prompts.split import SplitEncoded, SplitQuestion, Text

#: Windows of like length share a batch, so a neighbour may move the last bits of a float32 number.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    return Encoder(BertModel(config, add_pooling_layer=False)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def head() -> JointSchemaHead:
    torch.manual_seed(1)
    made = JointSchemaHead(16, width=8, routing_layers=2, layers=1, heads=2, feedforward=12)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.eval().requires_grad_(False)


def text(rng: random.Random, windows: int = 1) -> Text:
    return tuple(tuple(rng.randint(1, 49) for _ in range(rng.randint(2, 12))) for _ in range(windows))


def encoded(seed: int, questions: int = 3, windows: int = 2, options: int = 4) -> SplitEncoded:
    rng = random.Random(seed)
    asked = [SplitQuestion(i % 3, text(rng), tuple(text(rng) for _ in range(options))) for i in range(questions)]
    return SplitEncoded(text(rng, windows), tuple(asked))


def close(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)


def test_a_second_read_computes_nothing_and_answers_the_same(encoder: Encoder, head: JointSchemaHead) -> None:
    reader, request = SplitReader(encoder, head), encoded(1)
    first, second = reader.read(request), reader.read(request)
    assert (first.computed, first.reused) == (request.tokens, 0)
    assert (second.computed, second.reused) == (0, request.tokens)
    close(second.logits, first.logits)


@pytest.mark.parametrize("cache_bytes", [0, 2000, 1 << 20])
def test_the_size_of_the_cache_changes_no_answer(encoder: Encoder, head: JointSchemaHead, cache_bytes: int) -> None:
    small = SplitReader(encoder, head, cache_bytes)
    for seed in (1, 2, 1, 3, 2, 1):
        request = encoded(seed)
        close(small.read(request).logits, SplitReader(encoder, head, 0).read(request).logits)
    assert small.states.used <= cache_bytes and small.schemas.used <= cache_bytes


def test_known_states_and_known_schemas_are_reused_apart(encoder: Encoder, head: JointSchemaHead) -> None:
    reader, one, other = SplitReader(encoder, head), encoded(1), encoded(2)
    reader.read(one)
    state_tokens = sum(map(len, one.state))
    assert reader.read(replace(other, state=one.state)).reused == state_tokens
    assert reader.read(replace(one, state=other.state)).computed == sum(map(len, other.state))


def test_neighbours_and_order_change_nothing(encoder: Encoder, head: JointSchemaHead) -> None:
    request = encoded(4, questions=5)
    together = SplitReader(encoder, head).read(request).logits
    backwards = SplitReader(encoder, head).read(replace(request, questions=request.questions[::-1])).logits
    close(backwards[::-1], together)
    for question, expected in zip(request.questions, together, strict=True):
        close(SplitReader(encoder, head).read(replace(request, questions=(question,))).logits, (expected,))


def test_the_last_window_of_a_long_state_counts(encoder: Encoder, head: JointSchemaHead) -> None:
    request = encoded(5, windows=40)
    shorter = replace(request, state=request.state[:-1])
    reader = SplitReader(encoder, head)
    assert not torch.allclose(reader.read(request).logits[0], reader.read(shorter).logits[0], atol=TOLERANCE)


def test_255_options_and_temperatures(encoder: Encoder, head: JointSchemaHead) -> None:
    request = encoded(6, questions=2, options=255)
    plain = SplitReader(encoder, head).read(request).logits
    cooled = SplitReader(encoder, head, temperatures=((2.0, 0.0), (4.0, 0.5), (1.0, 0.0))).read(request).logits
    assert [len(row) for row in plain] == [255, 255]
    close(cooled, (plain[0] / 2, plain[1] / 4 / 127.5**0.5))


def test_numbers_that_are_not_finite_are_never_kept(encoder: Encoder, head: JointSchemaHead) -> None:
    reader, request = SplitReader(encoder, head), encoded(7)
    weights = encoder.bert.embeddings.word_embeddings.weight
    kept = weights.clone()
    weights.fill_(float("nan"))
    assert not reader.read(request).logits[0].isfinite().all()
    assert (reader.states.used, reader.schemas.used) == (0, 0)
    weights.copy_(kept)
    assert reader.read(request).reused == 0


def test_the_cache_drops_the_least_recently_used() -> None:
    rows = TextRows(torch.zeros(4), torch.zeros(4))
    cost = rows.size + 8
    cache: Cache[TextRows] = Cache(2 * cost)
    texts: list[Text] = [((1,),), ((2,),), ((3,),)]
    cache.put("", texts[0], rows)
    cache.put("", texts[1], rows)
    assert cache.get("", texts[0]) is rows
    cache.put("", texts[2], rows)
    assert [cache.get("", text) is rows for text in texts] == [True, False, True]
    assert (cache.used, len(cache)) == (2 * cost, 2)
