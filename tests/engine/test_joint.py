"""The joint reader over a backbone that is a table: what it asks of it, and what it makes of its rows."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from quaver.engine.joint import JointReader
from quaver.heads.joint_schema import JointSchemaHead
from quaver.models.backbone import Media
from quaver.prompts.encoded import Encoded, EncodedQuestion


class Table:
    """One row per token id, whatever comes before it."""

    device = torch.device("cpu")

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.hidden_size = 8
        self.rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
        self.output_embeddings = torch.randn(50, 8, generator=torch.Generator().manual_seed(2)).to(dtype)

    def check(self, ids: Sequence[int], media: Media | None) -> None:
        assert ids
        assert media is None

    def hidden(self, ids: Sequence[int], media: Media | None = None) -> Tensor:
        self.check(ids, media)
        return self.rows[list(ids)]


@pytest.fixture
def head() -> JointSchemaHead:
    torch.manual_seed(3)
    return JointSchemaHead(8, width=8, routing_layers=1, layers=1, heads=2, feedforward=16).eval()


FIRST = EncodedQuestion("choice", (4, 6), ((7, 9), (10, 11), (12, 15)), ("a", "b", "c"))
SECOND = EncodedQuestion("noul", (16, 18), ((19, 21), (22, 24)), ("true", "false"))
IDS = tuple(range(7, 33))
PROMPT = Encoded(IDS, (FIRST, SECOND), media_start=2, state_end=3)


def test_one_vector_per_question(head: JointSchemaHead) -> None:
    first, second = JointReader(Table(), head).read(PROMPT)
    assert (first.shape, second.shape) == ((3,), (2,))
    assert {row.dtype for row in (first, second)} == {torch.float32}


def test_options_read_their_own_tokens(head: JointSchemaHead) -> None:
    """The order in which options are listed is the order of their logits and nothing else."""
    swapped = EncodedQuestion("choice", (4, 6), ((12, 15), (10, 11), (7, 9)), ("c", "b", "a"))
    given = JointReader(Table(), head).read(PROMPT)
    other = JointReader(Table(), head).read(Encoded(IDS, (swapped, SECOND), 2, 3))
    torch.testing.assert_close(other[0], given[0].flip(0))
    torch.testing.assert_close(other[1], given[1])


def test_the_head_may_be_finer_than_the_backbone(head: JointSchemaHead) -> None:
    rough = JointReader(Table(torch.bfloat16), head).read(PROMPT)
    fine = JointReader(Table(), head).read(PROMPT)
    for a, b in zip(rough, fine, strict=True):
        assert (a - b).abs().max() < 0.05
