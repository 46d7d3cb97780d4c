"""The label read: next-token logits of a chat model at the end of a prompt, for the tokens of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quaver.engine.causal import HeadRead, Record
from quaver.heads.labels import read_labels
from quaver.prompts.label_encoded import LabelPlace

#: Rows of a table of low precision that are widened at a time.
BLOCK = 16_384


@dataclass(frozen=True, slots=True)
class LabelHead:
    """``embeddings`` [vocabulary, hidden] is the model's output table, ``softcap`` what bounds its logits.

    ``best_way_only`` is that of ``read_labels``.
    """

    embeddings: Tensor
    softcap: float | None = None
    best_way_only: bool = False

    def memory(self, hidden: Tensor) -> Tensor:
        """Nothing, [n, 0]: only the last row is read."""
        return hidden[:, :0]

    def read(self, records: Sequence[Record[LabelPlace]]) -> list[HeadRead]:
        """Of every record its label read, and one float64 vector: the labels' log-probabilities."""
        logits = self._logits(torch.stack([record.tail[-1] for record in records]))
        groups = [record.encoded.groups for record in records]
        reads = read_labels(logits, groups, self.softcap, self.best_way_only)
        return [HeadRead((torch.tensor(read.log_probabilities, dtype=torch.float64),), (read,)) for read in reads]

    def _logits(self, rows: Tensor) -> Tensor:
        """Next-token logits [n, vocabulary] of hidden rows [n, hidden], in float32 whatever the model is in."""
        wide = rows.float()
        return torch.cat([wide @ block.float().T for block in torch.split(self.embeddings, BLOCK)], dim=1)
