"""Next-token logits to the probabilities of answer labels.

A label may be written in several ways (``yes``, ``Yes``, with a space before it); each way is a token,
and the probabilities of a label's tokens are summed. What the labels hold together of the whole
vocabulary's probability, the label mass, says whether the model meant to answer with one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quaver.errors import EngineFault
from quaver.heads.softcap import softcap

#: Per label, the ids of the tokens that count for it.
Groups = Sequence[Sequence[int]]
#: Per option, the (read, label) pairs that its tokens pass where labels differ.
Paths = Sequence[Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class LabelRead:
    """What a model thinks of each label.

    ``log_probabilities`` are natural logarithms of full-vocabulary probabilities. ``argmax_is_label``:
    no other token is likelier than the likeliest label's. ``tied``: the labels that share the largest
    probability exactly, empty when one alone has it.
    """

    log_probabilities: tuple[float, ...]
    label_mass: float
    argmax_is_label: bool

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Of each label, given that the answer is one of them; they sum to 1."""
        return normalised(self.log_probabilities)

    @property
    def tied(self) -> tuple[int, ...]:
        top = max(self.log_probabilities)
        best = tuple(i for i, value in enumerate(self.log_probabilities) if value == top)
        return best if len(best) > 1 else ()


def read_labels(
    logits: Tensor, labels: Sequence[Groups], cap: float | None = None, best_way_only: bool = False
) -> list[LabelRead]:
    """One read per row of ``logits`` [rows, vocabulary], any float dtype; ``labels`` has the groups of each row.

    ``cap`` is the model's final softcap, applied here in float32: in bfloat16 its steps are up to 0.125
    wide and tie labels that differ. ``best_way_only`` counts only a label's likeliest token, for models
    that were trained so; the label mass always counts all. Raises EngineFault for a row that is not finite.
    """
    values = logits.float() if cap is None else softcap(logits.float(), cap)
    # In float64, because a log-probability is a small difference of large numbers.
    totals = torch.logsumexp(values.double(), dim=-1)
    if not bool(totals.isfinite().all()):
        raise EngineFault(
            f"next-token logits are not finite in rows {(~totals.isfinite()).nonzero().flatten().tolist()}"
        )
    ids = [[token for group in groups for token in group] for groups in labels]
    rows = torch.repeat_interleave(torch.arange(len(ids)), torch.tensor([len(row) for row in ids])).to(values.device)
    picked = values[rows, torch.tensor([token for row in ids for token in row], device=values.device)]
    # Taken below in the order in which ids lists them.
    logs = iter((picked.double() - totals[rows]).tolist())
    tops = (values.amax(dim=-1).double() - totals).tolist()
    return [
        pooled([[next(logs) for _ in group] for group in groups], top, best_way_only)
        for groups, top in zip(labels, tops, strict=True)
    ]


def join(reads: Sequence[LabelRead], paths: Paths) -> LabelRead:
    """The read of labels that are several tokens long, from the reads of every place where they differ.

    An option's probability is the product of those of its tokens at these places, each of the full
    vocabulary; tokens at which all remaining labels agree count as certain. The label mass is the sum,
    and whether the likeliest token is a label's is said of the first place. Labels of one token each have one
    place, whose read says what their mass is.
    """
    logs = tuple(math.fsum(reads[read].log_probabilities[label] for read, label in path) for path in paths)
    mass = reads[0].label_mass if len(reads) == 1 else _sum_of_probabilities(logs)
    return LabelRead(logs, mass, reads[0].argmax_is_label)


def normalised(logs: Sequence[float]) -> tuple[float, ...]:
    """Softmax in float64."""
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def pooled(logs: Sequence[Sequence[float]], top: float, best_way_only: bool = False) -> LabelRead:
    """The read of labels by the log-probabilities of their tokens; the likeliest token of all has ``top``."""
    mass = _sum_of_probabilities([value for group in logs for value in group])
    pool = max if best_way_only else _log_sum
    return LabelRead(tuple(pool(group) for group in logs), mass, max(map(max, logs)) >= top)


def _sum_of_probabilities(logs: Sequence[float]) -> float:
    # Labels that are all of a vocabulary would hold a little more than 1 of it, by rounding.
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs)
    return top if math.isinf(top) else top + math.log(math.fsum(math.exp(value - top) for value in logs))
