"""Attention over a past and new tokens, against the softmax over both with a mask."""

from __future__ import annotations

import pytest
import torch

from quaver.models.attention import attend


@pytest.mark.parametrize(("new", "past"), [(1, 1), (3, 700), (300, 64), (65, 33), (600, 0), (5, 0)])
@pytest.mark.parametrize(
    ("dtype", "sharpness", "tolerance"),
    [
        (torch.float64, 1, 1e-12),
        (torch.float32, 1, 2e-6),
        (torch.bfloat16, 1, 2**-6),
        # Scores of some hundreds, of which a bfloat16 has whole numbers only.
        (torch.float64, 20, 1e-11),
        (torch.float32, 20, 2e-5),
        (torch.bfloat16, 20, 2**-6),
    ],
)
def test_equals_the_softmax_over_past_and_new(
    new: int, past: int, dtype: torch.dtype, sharpness: float, tolerance: float
) -> None:
    torch.manual_seed(new)
    # As in a packed batch: heads of the query lie inside tokens.
    query = torch.randn(new, 4, 32, dtype=dtype).transpose(0, 1)
    key, value = torch.randn(2, 2, past + new, 32, dtype=dtype)
    query *= sharpness
    known = (key[:, :past], value[:, :past]) if past else None
    found = attend(query, key[:, past:], value[:, past:], known, 0.3)

    wide_key, wide_value = (x.double().repeat_interleave(2, dim=0) for x in (key, value))
    hidden = torch.ones(new, past + new, dtype=torch.bool).triu(past + 1)
    scores = (query.double() @ wide_key.mT * 0.3).masked_fill(hidden, -torch.inf)
    expected = scores.softmax(-1) @ wide_value
    assert found.dtype == dtype
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("past", [0, 90])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2**-6)])
def test_a_mask_hides_and_shows_what_it_says(past: int, dtype: torch.dtype, tolerance: float) -> None:
    """A window of 50 tokens, and 40 tokens that see each other both ways."""
    torch.manual_seed(past)
    query, new = torch.randn(4, 400, 32, dtype=dtype), past + 400
    key, value = torch.randn(2, 2, new, 32, dtype=dtype)
    allowed = torch.ones(400, new, dtype=torch.bool).tril(past)
    allowed[300:340, past + 300 : past + 340] = True
    allowed = allowed.triu(past - 49)
    mask = torch.zeros(400, new, dtype=dtype).masked_fill(~allowed, -torch.inf)
    known = (key[:, :past], value[:, :past]) if past else None
    found = attend(query, key[:, past:], value[:, past:], known, 0.3, mask)

    wide_key, wide_value = (x.double().repeat_interleave(2, dim=0) for x in (key, value))
    expected = (query.double() @ wide_key.mT * 0.3).masked_fill(~allowed, -torch.inf).softmax(-1) @ wide_value
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()
