"""An encoder of which only the upper layers learn; what the lower ones make of a text is kept by content.

Training reads the same sentences and wordings again and again. Their rows below the cut never
change, nor do the vectors that the untrained encoder gives them, so both are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quaver.models.encoder import Encoder, groups
from quaver.prompts.split import Text, Window


class TunedEncoder(nn.Module):
    """``encoder`` learns in its layers from ``frozen`` on; ``original`` is untrained and the same below them."""

    def __init__(self, encoder: Encoder, original: Encoder, frozen: int) -> None:
        super().__init__()
        # Eager attention: the fused kernel's backward is several times slower on a CPU in bfloat16.
        for one in (encoder, original):
            one.bert.set_attn_implementation("eager")
        self.encoder = encoder
        self.upper = encoder.bert.encoder.layer[frozen:].requires_grad_(True)
        self.original = [original.to(torch.bfloat16)]  # in a list, so that it is no submodule
        self.frozen = frozen
        self._lower: dict[Window, Tensor] = {}
        self._sums: dict[Window, Tensor] = {}

    def forward(self, windows: Sequence[Window], budget: int = 4096) -> Tensor:
        """The hidden rows [N, hidden] of all windows, one after another in order."""
        self._keep(windows, budget)
        parts, places = [], []
        ends = torch.tensor([len(window) for window in windows]).cumsum(0).tolist()
        for group in groups(windows, budget):
            hidden, mask, real = _padded([self._lower[windows[i]] for i in group])
            for layer in self.upper:
                hidden = layer(hidden, mask)
            # One gather: taking each window's slice would make the backward write a full batch per window.
            parts.append(hidden[real].float())
            places += [row for i in group for row in range(ends[i] - len(windows[i]), ends[i])]
        return torch.cat(parts)[torch.tensor(places).argsort()]

    @torch.no_grad()
    def original_vectors(self, texts: Sequence[Text], budget: int = 4096) -> Tensor:
        """Mean rows [N, hidden] of texts read before, as the untrained encoder gives them."""
        new = [w for w in dict.fromkeys(w for text in texts for w in text) if w not in self._sums]
        for group in groups(new, budget):
            hidden, mask, real = _padded([self._lower[new[i]] for i in group])
            for layer in self.original[0].bert.encoder.layer[self.frozen :]:
                hidden = layer(hidden, mask)
            totals = (hidden.float() * real.unsqueeze(-1)).sum(1)
            self._sums.update(zip((new[i] for i in group), totals, strict=True))
        sums = [torch.stack([self._sums[window] for window in text]).sum(0) for text in texts]
        return torch.stack([total / sum(map(len, text)) for total, text in zip(sums, texts, strict=True)])

    @torch.no_grad()
    def _keep(self, windows: Sequence[Window], budget: int) -> None:
        """Reads windows not seen before through the lower layers."""
        new = [window for window in dict.fromkeys(windows) if window not in self._lower]
        bert = self.original[0].bert
        for group in groups(new, budget):
            chosen = [new[i] for i in group]
            ids = nn.utils.rnn.pad_sequence([torch.tensor(window) for window in chosen], batch_first=True)
            _, mask, _ = _padded([torch.empty(len(window), 1) for window in chosen])
            hidden = bert.embeddings(ids)
            for layer in bert.encoder.layer[: self.frozen]:
                hidden = layer(hidden, mask)
            self._lower.update({w: rows[: len(w)].clone() for w, rows in zip(chosen, hidden, strict=True)})


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows as one batch [B, longest, n], the additive attention mask [B, 1, 1, longest], what is real [B, longest]."""
    batch = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(batch.shape[1]) < lengths.unsqueeze(1)
    return batch, ~real[:, None, None, :] * torch.tensor(-1e4, dtype=torch.bfloat16), real
