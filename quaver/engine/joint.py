"""The joint read: the head of a Clef release over the rows of whole prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quaver.engine.causal import HeadRead, Record
from quaver.heads.checkpoint import load_joint_schema_head
from quaver.heads.joint_schema import HeadInput, JointSchemaHead, span_means
from quaver.models.backbone import Backbone
from quaver.prompts.encoded import Encoded

TYPES = {"noul": 0, "choice": 1, "score": 2}


@dataclass(frozen=True, slots=True)
class JointHead:
    """``head`` with the output embeddings [vocabulary, hidden] of the backbone it was trained on."""

    head: JointSchemaHead
    embeddings: Tensor

    @classmethod
    def load(cls, folder: Path, backbone: Backbone) -> JointHead:
        """The head of the release in ``folder``, where its backbone is, in float32 or what is wider of the backbone's.

        A head in bfloat16 would move answers six times as far as a backbone in it does, and saves next to nothing.
        Raises BadRelease for a head that is not whole.
        """
        precision = torch.promote_types(backbone.dtype, torch.float32)
        return cls(load_joint_schema_head(folder, backbone.device, precision), backbone.output_embeddings)

    def memory(self, hidden: Tensor) -> Tensor:
        """The rows that options and questions attend to, [n, width]."""
        return self.head.project_memory(self.head.normalise(hidden.to(self._dtype)))

    def read(self, records: Sequence[Record[Encoded]]) -> list[HeadRead]:
        return [HeadRead(logits) for logits in self.logits(records)]

    def logits(self, records: Sequence[Record[Encoded]]) -> list[tuple[Tensor, ...]]:
        """One float32 CPU vector per question of every record, options in the order of its prompt."""
        answers = []
        together = self.head([self.rows(record) for record in records])
        for record, logits in zip(records, together, strict=True):
            sizes = [len(question.option_spans) for question in record.encoded.questions]
            answers.append(logits.float().cpu().split_with_sizes(sizes))
        return answers

    def rows(self, record: Record[Encoded]) -> HeadInput:
        """The head's input for one record."""
        encoded, device = record.encoded, record.tail.device
        rows = self.head.normalise(record.tail.to(self._dtype))
        question_spans = [question.span for question in encoded.questions]
        option_spans = [span for question in encoded.questions for span in question.option_spans]
        # All spans lie after the state, whose hidden rows may be long gone.
        spans = torch.tensor(question_spans + option_spans) - encoded.state_end
        means = span_means(rows, spans.to(device))
        question, context = means.split_with_sizes([len(question_spans), len(option_spans)])
        # Options lie close together, so their stretch of the prompt is looked up in one gather.
        options = spans[len(question_spans) :]
        first, last = int(options.min()), int(options.max())
        ids = torch.tensor(encoded.ids[encoded.state_end + first : encoded.state_end + last], device=device)
        counts = torch.tensor([len(question.option_spans) for question in encoded.questions])
        summary = rows[-1]
        return HeadInput(
            memory=record.memory,
            question=question,
            context=context,
            lexical=span_means(self.embeddings[ids].to(self._dtype), (options - first).to(device)),
            summary=summary,
            anchor=question + summary,
            types=torch.tensor([TYPES[question.type] for question in encoded.questions], device=device),
            owner=torch.repeat_interleave(torch.arange(len(counts)), counts).to(device),
        )

    @property
    def _dtype(self) -> torch.dtype:
        return self.head.hidden_norm.weight.dtype
