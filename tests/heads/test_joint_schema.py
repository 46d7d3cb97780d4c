"""The joint schema head against logits that the reference computed in float64."""

import json
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from vectors import FLASH, GOLDEN, tensors

from quaver.engine.causal import Record
from quaver.engine.joint import JointHead
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.heads.joint_schema import Attention, HeadInput, JointSchemaHead, span_means
from quaver.prompts.encoded import Encoded, EncodedQuestion

VECTORS = json.loads((GOLDEN / "head-cases.json").read_text())
NAMES = ("noul", "choice", "score")


@cache
def stored() -> dict[str, Tensor]:
    return tensors("head-cases")


@cache
def head(name: str, dtype: torch.dtype = torch.float64) -> JointSchemaHead:
    prefix = f"{name}."
    weights = {
        key.removeprefix(prefix): value
        for key, value in stored().items()
        if key.startswith(prefix) and key != f"{name}.output_embeddings"
    }
    made = JointSchemaHead(**VECTORS["heads"][name])
    made.load_state_dict(weights, strict=True)
    return made.to(dtype).eval()


def encoded(case: dict[str, Any], ids: list[int]) -> Encoded:
    questions = tuple(
        EncodedQuestion(
            asked["type"] if isinstance(asked["type"], str) else NAMES[asked["type"]],
            tuple(asked["question_span"]),
            tuple(tuple(span) for span in asked["option_spans"]),
            tuple(str(i) for i in range(len(asked["option_spans"]))),
        )
        for asked in case["questions"]
    )
    return Encoded(tuple(ids), questions, media_start=0, state_end=0)


def logits(case: dict[str, Any], dtype: torch.dtype) -> Tensor:
    made, name = head(case["head"], dtype), case["id"]
    hidden = stored()[f"{name}.hidden"].to(dtype)
    prompt = encoded(case, stored()[f"{name}.token_ids"].tolist())
    embeddings = stored()[f"{case['head']}.output_embeddings"].to(dtype)
    with torch.no_grad():
        return made([joint_rows(made, prompt, hidden, embeddings)])[0]


def joint_rows(made: JointSchemaHead, prompt: Encoded, hidden: Tensor, embeddings: Tensor) -> HeadInput:
    head = JointHead(made, embeddings)
    return head.rows(Record(prompt, head.memory(hidden), hidden[prompt.state_end :]))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_float64_equals_the_vectors(case: dict[str, Any]) -> None:
    torch.testing.assert_close(
        logits(case, torch.float64), stored()[f"{case['id']}.logits"].double(), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("case", VECTORS["cases"][::5], ids=lambda case: case["id"])
def test_float32_is_as_close_as_the_references_own(case: dict[str, Any]) -> None:
    error = (logits(case, torch.float32).double() - stored()[f"{case['id']}.logits"].double()).abs().max()
    assert error < 2e-4


@pytest.mark.parametrize("options", [2, 300])
def test_records_together_are_records_alone(options: int) -> None:
    """Few queries and many take different roads through the attention; neither may see its neighbours."""
    torch.manual_seed(5)
    made = JointSchemaHead(24, width=32, routing_layers=2, layers=2, heads=4, feedforward=16).double().eval()
    embeddings = torch.randn(60, 24).double()
    records = []
    for length, count in ((40, 2), (3000, options), (700, 5)):
        spans = tuple((length - 2 - i % 9, length - 1) for i in range(count))
        asked = EncodedQuestion("choice", (4, 9), spans, tuple(map(str, range(count))))
        prompt = Encoded(tuple(i % 60 for i in range(length)), (asked, asked), 0, 0)
        records.append(joint_rows(made, prompt, torch.randn(length, 24).double(), embeddings))
    with torch.no_grad():
        together = made(records)
        alone = [made([record])[0] for record in records]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_a_memory_is_attended_to_alike_by_few_and_by_many() -> None:
    torch.manual_seed(6)
    attention = Attention(64, 4).double()
    torch.nn.init.normal_(attention.in_proj_bias)
    queries, memory = torch.randn(40, 64).double(), torch.randn(50, 64).double()
    with torch.no_grad():
        many = attention(queries, [40], [memory])
        few = torch.cat([attention(some, [len(some)], [memory]) for some in queries.split(5)])
    torch.testing.assert_close(few, many, rtol=1e-10, atol=1e-12)


def test_all_cases_are_here() -> None:
    assert len(VECTORS["cases"]) == 40


@pytest.mark.parametrize(("hidden_size", "parameters"), [(5120, 128_056_324), (4096, 121_762_820)])
def test_published_sizes(hidden_size: int, parameters: int) -> None:
    with torch.device("meta"):
        made = JointSchemaHead(hidden_size, width=1024, routing_layers=2, layers=4, heads=16, feedforward=4096)
    state = made.state_dict()
    assert len(state) == 122
    assert sum(tensor.numel() for tensor in state.values()) == parameters


def test_span_means_do_not_mix_rows() -> None:
    rows = torch.tensor([[1.0], [3.0], [1e30], [5.0], [float("nan")]])
    means = span_means(rows, torch.tensor([[0, 2], [3, 4], [1, 2]]))
    assert means.tolist() == [[2.0], [5.0], [3.0]]


def test_bfloat16_stays_near_float32() -> None:
    made = load_joint_schema_head(FLASH)
    assert {tensor.dtype for tensor in made.state_dict().values()} == {torch.float32}
    half = JointSchemaHead(hidden_size=64, width=64, routing_layers=2, layers=2, heads=4, feedforward=128)
    half.load_state_dict(made.state_dict())
    half = half.to(torch.bfloat16).eval()
    prompt = Encoded(tuple(range(40)), (EncodedQuestion("choice", (4, 9), ((10, 14), (15, 20)), ("a", "b")),), 0, 0)
    hidden = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    embeddings = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * 0.1
    with torch.no_grad():
        (full,) = made([joint_rows(made, prompt, hidden, embeddings)])
        (rough,) = half([joint_rows(half, prompt, hidden.bfloat16(), embeddings.bfloat16())])
    assert rough.dtype == torch.bfloat16
    assert (full - rough.float()).abs().max() < 0.1
