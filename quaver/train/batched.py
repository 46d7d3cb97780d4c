"""The joint schema head over many records at once, and the encoder over all their texts.

``JointSchemaHead.forward`` reads one record. Training reads dozens, so the same modules run here
over padded rows; a test holds both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from quaver.heads.joint_schema import MAX_LOG_SCALE, Attention, EvidenceRouting, FieldDecoder, JointSchemaHead
from quaver.prompts.split import SplitQuestion, Text, Window

#: The hidden rows [N, hidden] of windows, one after another in order.
RowsOf = Callable[[Sequence[Window]], Tensor]


@dataclass(frozen=True, slots=True)
class TextRows:
    """What the encoder gives for distinct texts: all hidden rows one after another, and which text each is of."""

    flat: Tensor  # [N, hidden]
    owner: Tensor  # [N] long: the text of each row
    place: dict[Text, int]

    def of(self, texts: Sequence[Text]) -> Tensor:
        """The number of each text, [len(texts)]."""
        return torch.tensor([self.place[text] for text in texts])

    def mean(self, rows: Tensor) -> Tensor:
        """Mean of ``rows`` [N, d], which stand beside ``flat``, over each text; [T, d] float32."""
        count = torch.bincount(self.owner, minlength=len(self.place)).unsqueeze(1)
        total = rows.new_zeros(len(self.place), rows.shape[1], dtype=torch.float32)
        return total.index_add(0, self.owner, rows.float()) / count


def read_texts(encoder: RowsOf, texts: Sequence[Text]) -> TextRows:
    """Encodes every distinct text once."""
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    lengths = torch.tensor([sum(map(len, text)) for text in place])
    flat = encoder([window for text in place for window in text])
    return TextRows(flat, torch.repeat_interleave(torch.arange(len(place)), lengths), place)


def logits(
    head: JointSchemaHead, texts: TextRows, states: Sequence[Text], questions: Sequence[SplitQuestion]
) -> tuple[Tensor, Tensor]:
    """Prior and gated residual [N, O] of question i about state i; their sum are the logits.

    Options beyond a question's own get a prior of -1e4 and no residual.
    """
    normalised = head.normalise(texts.flat)
    means, normal = texts.mean(texts.flat), texts.mean(normalised)
    memory, seen, state_of = _memory(head, texts, normalised, states)
    state, asked = texts.of(states), texts.of([question.text for question in questions])
    most = max(len(question.options) for question in questions)
    option = torch.zeros(len(questions), most, dtype=torch.long)
    real = torch.zeros(len(questions), most, dtype=torch.bool)
    for row, question in enumerate(questions):
        option[row, : len(question.options)] = texts.of(question.options)
        real[row, : len(question.options)] = True
    types = torch.tensor([question.type for question in questions])

    options = head.option_context_projection(normal)[option] + head.option_lexical_projection(means)[option]
    options = options + head.option_question_projection(normal)[asked].unsqueeze(1)
    seen = seen[state_of]
    for layer in head.evidence_layers:
        assert isinstance(layer, EvidenceRouting)
        rows = layer.memory_norm(memory)
        options = options + _attend(layer.attention, layer.query_norm(options), rows, state_of, seen)
        options = options + layer.feedforward(layer.feedforward_norm(options))
    fields = head.question_projection(normal)[asked]
    agreement = (options * fields.unsqueeze(1)).sum(-1) / options.shape[-1] ** 0.5
    weight = agreement.masked_fill(~real, -1e4).softmax(-1)
    summary = head.option_summary_norm((weight.unsqueeze(-1) * options).sum(1))
    fields = fields + summary + head.global_projection(normal)[state] + head.type_embedding(types)
    for layer in head.layers:
        assert isinstance(layer, FieldDecoder)
        fields = fields + layer.self_attn.alone(layer.norm1(fields))
        routed = _attend(layer.multihead_attn, layer.norm2(fields).unsqueeze(1), memory, state_of, seen)
        fields = fields + routed.squeeze(1)
        fields = fields + layer.linear2(functional.gelu(layer.linear1(layer.norm3(fields))))
    cosine = functional.cosine_similarity(means[option].float(), means[state].float().unsqueeze(1), dim=-1)
    prior = head.prior_logit_scale.clamp(max=MAX_LOG_SCALE).exp() * cosine
    paired = head.field_norm(fields).unsqueeze(1).expand_as(options)
    joint = torch.sigmoid(head.residual_gate) * head.joint(paired, head.option_norm(options))
    return prior.float().masked_fill(~real, -1e4), joint.float().masked_fill(~real, 0.0)


def _memory(
    head: JointSchemaHead, texts: TextRows, normalised: Tensor, states: Sequence[Text]
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected rows of the distinct states [S, L, width], which of them are real [S, L], and each state's row [N]."""
    distinct = {text: i for i, text in enumerate(dict.fromkeys(states))}
    lengths = torch.bincount(texts.owner)
    starts = lengths.cumsum(0) - lengths
    chosen = texts.of(list(distinct))
    positions = torch.arange(int(lengths[chosen].max()))
    seen = positions < lengths[chosen].unsqueeze(1)
    # Padding repeats the state's last row; nothing attends to it.
    index = starts[chosen].unsqueeze(1) + torch.minimum(positions, lengths[chosen].unsqueeze(1) - 1)
    rows = normalised.index_select(0, index.flatten())
    memory = head.project_memory(rows).view(*index.shape, -1)
    return memory, seen, torch.tensor([distinct[text] for text in states])


def _attend(attention: Attention, queries: Tensor, memory: Tensor, state_of: Tensor, seen: Tensor) -> Tensor:
    """``attention`` of [N, O, w] over rows ``state_of`` [N] of ``memory`` [S, L, w], where ``seen`` [N, L]."""
    width = queries.shape[-1]
    q = functional.linear(queries, attention.in_proj_weight[:width], attention.in_proj_bias[:width])
    kv = functional.linear(memory, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
    k, v = kv.index_select(0, state_of).chunk(2, dim=-1)
    q, k, v = (x.reshape(*x.shape[:2], attention.heads, -1).transpose(1, 2) for x in (q, k, v))
    # Written out, because the fused kernel's backward is several times slower on a CPU in bfloat16.
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    mixed = scores.masked_fill(~seen[:, None, None, :], -1e4).softmax(-1).to(v.dtype) @ v
    out: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
    return out
