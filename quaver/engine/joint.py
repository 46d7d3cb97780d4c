"""One pass over a prompt and the joint schema head over its rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quaver.heads.joint_schema import HeadInput, JointSchemaHead, span_means
from quaver.models.backbone import Backbone, Media
from quaver.prompts.encoded import Encoded

TYPES = {"noul": 0, "choice": 1, "score": 2}


@dataclass(frozen=True, slots=True)
class JointReader:
    """A backbone and the head that was trained on it; both on one device, the head in any precision."""

    backbone: Backbone
    head: JointSchemaHead

    @torch.inference_mode()
    def read(self, encoded: Encoded, media: Media | None = None) -> list[Tensor]:
        """One float32 CPU vector of logits per question, options in the order of ``encoded``.

        Raises BadRequest when the prompt's media tokens and ``media`` disagree.
        """
        hidden = self.backbone.hidden(encoded.ids, media)
        rows = head_input(self.head, encoded, hidden, self.backbone.output_embeddings)
        logits = self.head(rows).float().cpu()
        return list(logits.split_with_sizes([len(question.option_spans) for question in encoded.questions]))


def head_input(head: JointSchemaHead, encoded: Encoded, hidden: Tensor, embeddings: Tensor) -> HeadInput:
    """The head's rows for one prompt: ``hidden`` [L, d] of it and the output embeddings [vocabulary, d]."""
    dtype, device = head.hidden_norm.weight.dtype, hidden.device
    rows = head.normalise(hidden.to(dtype))
    question_spans = [question.span for question in encoded.questions]
    option_spans = [span for question in encoded.questions for span in question.option_spans]
    spans = torch.tensor(question_spans + option_spans)
    question, context = span_means(rows, spans.to(device)).split_with_sizes([len(question_spans), len(option_spans)])
    # Options lie close together, so their stretch of the prompt is looked up in one gather.
    first, last = int(spans[len(question_spans) :].min()), int(spans[len(question_spans) :].max())
    stretch = embeddings[torch.tensor(encoded.ids[first:last], device=device)].to(dtype)
    counts = torch.tensor([len(question.option_spans) for question in encoded.questions])
    summary = rows[-1]
    return HeadInput(
        memory=head.project_memory(rows),
        question=question,
        context=context,
        lexical=span_means(stretch, (spans[len(question_spans) :] - first).to(device)),
        summary=summary,
        anchor=question + summary,
        types=torch.tensor([TYPES[question.type] for question in encoded.questions], device=device),
        owner=torch.repeat_interleave(torch.arange(len(counts)), counts).to(device),
    )
