"""The joint head over rows of a table: which of them it reads, and what it makes of them."""

import pytest
import torch
from torch import Tensor

from quaver.engine.causal import Record
from quaver.engine.joint import JointHead
from quaver.heads.joint_schema import JointSchemaHead
from quaver.prompts.encoded import Encoded, EncodedQuestion

ROWS = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
EMBEDDINGS = torch.randn(50, 8, generator=torch.Generator().manual_seed(2))
FIRST = EncodedQuestion("choice", (4, 6), ((7, 9), (10, 11), (12, 15)), ("a", "b", "c"))
SECOND = EncodedQuestion("noul", (16, 18), ((19, 21), (22, 24)), ("true", "false"))
IDS = tuple(range(7, 33))
PROMPT = Encoded(IDS, (FIRST, SECOND), media_start=2, state_end=3)


@pytest.fixture
def head() -> JointSchemaHead:
    torch.manual_seed(3)
    return JointSchemaHead(8, width=8, routing_layers=1, layers=1, heads=2, feedforward=16).eval()


def logits(head: JointSchemaHead, *prompts: Encoded, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, ...]]:
    joint = JointHead(head, EMBEDDINGS.to(dtype))
    records = []
    for prompt in prompts:
        hidden = ROWS[list(prompt.ids)].to(dtype)
        records.append(Record(prompt, joint.memory(hidden), hidden[prompt.state_end :]))
    with torch.no_grad():
        return joint.logits(records)


def test_one_vector_per_question(head: JointSchemaHead) -> None:
    [(first, second)] = logits(head, PROMPT)
    assert (first.shape, second.shape) == ((3,), (2,))
    assert {row.dtype for row in (first, second)} == {torch.float32}


def test_options_read_their_own_tokens(head: JointSchemaHead) -> None:
    """The order in which options are listed is the order of their logits and nothing else."""
    swapped = EncodedQuestion("choice", (4, 6), ((12, 15), (10, 11), (7, 9)), ("c", "b", "a"))
    given, other = logits(head, PROMPT, Encoded(IDS, (swapped, SECOND), 2, 3))
    torch.testing.assert_close(other[0], given[0].flip(0))
    torch.testing.assert_close(other[1], given[1])


def test_where_the_state_ends_changes_nothing(head: JointSchemaHead) -> None:
    """It only says which rows the head still has; the memory has them all."""
    early, late = logits(head, Encoded(IDS, (FIRST, SECOND), 2, 0), Encoded(IDS, (FIRST, SECOND), 2, 4))
    for a, b in zip(early, late, strict=True):
        torch.testing.assert_close(a, b)


def test_the_head_may_be_finer_than_the_backbone(head: JointSchemaHead) -> None:
    [rough], [fine] = logits(head, PROMPT, dtype=torch.bfloat16), logits(head, PROMPT)
    for a, b in zip(rough, fine, strict=True):
        assert (a - b).abs().max() < 0.05
