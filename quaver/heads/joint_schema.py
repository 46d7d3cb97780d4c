"""The joint schema head: hidden rows of one prompt to one logit per option of every question.

Source: the equations of the Clef releases' ``joint_schema_model.py``; tensor names and shapes are
those of ``joint_head.safetensors``. The head is split where a state can be reused: what it needs
from state positions is only ``project_memory`` of their normalised rows; everything else comes from
the rows of questions, options and the last token, gathered into a ``HeadInput``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Learnt scales are kept at or below 100, as CLIP does and the releases after it.
MAX_LOG_SCALE = math.log(100.0)


@dataclass(frozen=True, slots=True)
class HeadInput:
    """Rows of one record: L memory rows, Q questions, O options of all questions together.

    Rows called normalised have gone through ``JointSchemaHead.normalise``.
    """

    memory: Tensor  # [L, width], from project_memory
    question: Tensor  # [Q, hidden], normalised, mean over each question's tokens
    context: Tensor  # [O, hidden], normalised, mean over each option's tokens
    lexical: Tensor  # [O, hidden], raw; what the prior compares with the anchor
    summary: Tensor  # [hidden], normalised; the whole prompt in one row
    anchor: Tensor  # [Q, hidden]; Clef: question + summary
    types: Tensor  # [Q] long: noul 0, choice 1, score 2
    owner: Tensor  # [O] long: which question an option belongs to


class JointSchemaHead(nn.Module):
    """Arguments are the keys of a release's ``joint_head_config.json``."""

    def __init__(
        self,
        hidden_size: int,
        width: int,
        routing_layers: int,
        layers: int,
        heads: int,
        feedforward: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden_norm = nn.LayerNorm(hidden_size)
        self.memory_projection = nn.Linear(hidden_size, width, bias=False)
        self.question_projection = nn.Linear(hidden_size, width, bias=False)
        self.option_question_projection = nn.Linear(hidden_size, width, bias=False)
        self.global_projection = nn.Linear(hidden_size, width, bias=False)
        self.option_context_projection = nn.Linear(hidden_size, width, bias=False)
        self.option_lexical_projection = nn.Linear(hidden_size, width, bias=False)
        self.type_embedding = nn.Embedding(3, width)
        self.evidence_layers = nn.ModuleList(
            EvidenceRouting(width, heads, feedforward, dropout) for _ in range(routing_layers)
        )
        self.option_summary_norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(FieldDecoder(width, heads, feedforward, dropout) for _ in range(layers))
        self.field_norm = nn.LayerNorm(width)
        self.option_norm = nn.LayerNorm(width)
        # A release names these tensors residual_scorer.0 and .3, so every place counts, also that of a dropout of 0.
        self.residual_scorer = nn.Sequential(
            nn.Linear(4 * width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 1)
        )
        self.prior_logit_scale = nn.Parameter(torch.zeros(()))
        self.joint_logit_scale = nn.Parameter(torch.zeros(()))
        self.residual_gate = nn.Parameter(torch.zeros(()))

    def normalise(self, hidden: Tensor) -> Tensor:
        """Layer norm of backbone rows, [..., hidden]."""
        rows: Tensor = self.hidden_norm(hidden)
        return rows

    def project_memory(self, normalised: Tensor) -> Tensor:
        """Normalised rows [L, hidden] to the rows that options and fields attend to, [L, width]."""
        rows: Tensor = self.memory_projection(normalised)
        return rows

    def forward(self, records: Sequence[HeadInput], alone: bool = False) -> list[Tensor]:
        """Logits [O] of every record. With ``alone`` the questions of a record do not attend to each other.

        The rows of all records lie one after another, so no record pays for the size of another one.
        """
        batch = _Batch.of(records)
        options = (
            self.option_context_projection(batch.context)
            + self.option_lexical_projection(batch.lexical)
            + self.option_question_projection(batch.question)[batch.owner]
        )
        for layer in self.evidence_layers:
            options = layer(options, batch.options, batch.memories)
        fields = self.question_projection(batch.question)
        fields = (
            fields
            + self.option_summary_norm(summarise(options, fields, batch.owner))
            + self.global_projection(batch.summary)[batch.record]
            + self.type_embedding(batch.types)
        )
        for layer in self.layers:
            fields = layer(fields, batch.questions, batch.memories, alone)
        logits = self.prior(batch.lexical, batch.anchor, batch.owner) + torch.sigmoid(self.residual_gate) * self.joint(
            self.field_norm(fields)[batch.owner], self.option_norm(options)
        )
        return list(logits.split_with_sizes(batch.options))

    def prior(self, lexical: Tensor, anchor: Tensor, owner: Tensor) -> Tensor:
        """Scaled cosine of each option's lexical row and its question's anchor, [O]."""
        # torch's own epsilons, 1e-12 here and 1e-8 in cosine_similarity, are those of the releases.
        anchor = functional.normalize(anchor, dim=-1)[owner]
        cosine = (functional.normalize(lexical, dim=-1) * anchor).sum(-1)
        return self.prior_logit_scale.clamp(max=MAX_LOG_SCALE).exp() * cosine

    def joint(self, fields: Tensor, options: Tensor) -> Tensor:
        """Scaled cosine plus learnt residual of field and option pairs, both [O, width]; [O]."""
        cosine = functional.cosine_similarity(fields, options, dim=-1)
        pairs = torch.cat([fields, options, fields * options, (fields - options).abs()], dim=-1)
        scale = self.joint_logit_scale.clamp(max=MAX_LOG_SCALE).exp()
        logits: Tensor = scale * cosine + self.residual_scorer(pairs).squeeze(-1)
        return logits


def summarise(options: Tensor, fields: Tensor, owner: Tensor) -> Tensor:
    """Each question's options [O, w] averaged by their softmax agreement with its field [Q, w]; [Q, w]."""
    agreement = (options * fields[owner]).sum(-1) / math.sqrt(options.shape[-1])
    # A softmax over the options of each question, with all questions side by side.
    top = agreement.new_full((len(fields),), -math.inf).scatter_reduce(0, owner, agreement, "amax")
    weight = (agreement - top[owner]).exp()
    total = weight.new_zeros(len(fields)).index_add(0, owner, weight)
    return torch.zeros_like(fields).index_add(0, owner, (weight / total[owner]).unsqueeze(-1) * options)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rows of several records, one after another. ``options`` and ``questions`` count each record's."""

    memories: list[Tensor]
    question: Tensor
    context: Tensor
    lexical: Tensor
    summary: Tensor  # [records, hidden]
    anchor: Tensor
    types: Tensor
    owner: Tensor  # [O] long, among the questions of all records
    record: Tensor  # [Q] long: which record a question belongs to
    options: list[int]
    questions: list[int]

    @classmethod
    def of(cls, records: Sequence[HeadInput]) -> _Batch:
        device = records[0].question.device
        questions = [len(record.question) for record in records]
        sizes = torch.tensor(questions)
        first = (sizes.cumsum(0) - sizes).tolist()
        return cls(
            memories=[record.memory for record in records],
            question=torch.cat([record.question for record in records]),
            context=torch.cat([record.context for record in records]),
            lexical=torch.cat([record.lexical for record in records]),
            summary=torch.stack([record.summary for record in records]),
            anchor=torch.cat([record.anchor for record in records]),
            types=torch.cat([record.types for record in records]),
            owner=torch.cat([record.owner + begin for record, begin in zip(records, first, strict=True)]),
            record=torch.repeat_interleave(torch.arange(len(records)), sizes).to(device),
            options=[len(record.owner) for record in records],
            questions=questions,
        )


class Attention(nn.Module):
    """Multi-head attention with the packed tensors of a release; rows of several records side by side."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, queries: Tensor, counts: Sequence[int], memories: Sequence[Tensor]) -> Tensor:
        """Queries [N, w], the first ``counts[0]`` of them over ``memories[0]`` [M, w], and so on; [N, w]."""
        width = queries.shape[-1]
        q = functional.linear(queries, self.in_proj_weight[:width], self.in_proj_bias[:width])
        mixed = []
        for mine, memory in zip(q.split_with_sizes(list(counts)), memories, strict=True):
            # Which of the two is cheaper turns where there are as many queries as a head has columns.
            few = len(mine) < width // self.heads
            mixed.append(self._absorbed(mine, memory) if few else self._projected(mine, memory))
        rows: Tensor = self.out_proj(torch.cat(mixed))
        return rows

    def _projected(self, q: Tensor, memory: Tensor) -> Tensor:
        """The textbook form: keys and values of every memory row."""
        width = q.shape[-1]
        k, v = functional.linear(memory, self.in_proj_weight[width:], self.in_proj_bias[width:]).chunk(2, dim=-1)
        # torch's fast attention kernels want a batch dimension.
        q, k, v = (x.view(1, len(x), self.heads, -1).transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)[0]

    def _absorbed(self, q: Tensor, memory: Tensor) -> Tensor:
        """The same with the key and value matrices applied to the queries' side.

        A few questions about a long memory then cost no projection of that memory, which is what is left
        to do for a state that was read before. The bias of the keys shifts all scores of a query alike, so
        the softmax does not see it.
        """
        count, width = q.shape
        keys, values = self.in_proj_weight[width:].view(2, self.heads, -1, width)
        q = q.view(count, self.heads, -1).transpose(0, 1)
        scores = (q @ keys).flatten(0, 1) @ memory.T * (width // self.heads) ** -0.5
        # A softmax over a long memory in bfloat16 would lose the rows that hold little each and much together.
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.softmax(-1, dtype=wide).to(memory.dtype)
        mixed = (weights @ memory).view(self.heads, count, width) @ values.transpose(1, 2)
        rows: Tensor = mixed.transpose(0, 1).flatten(1) + self.in_proj_bias[2 * width :]
        return rows

    def among(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Self-attention [N, w]: the rows of each record over each other."""
        qkv = functional.linear(rows, self.in_proj_weight, self.in_proj_bias)
        mixed = []
        for mine in qkv.split_with_sizes(list(counts)):
            q, k, v = mine.view(1, len(mine), 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed.append(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)[0])
        out: Tensor = self.out_proj(torch.cat(mixed))
        return out

    def alone(self, rows: Tensor) -> Tensor:
        """Self-attention when every row sees only itself: its own value, projected."""
        width = rows.shape[-1]
        value = functional.linear(rows, self.in_proj_weight[2 * width :], self.in_proj_bias[2 * width :])
        out: Tensor = self.out_proj(value)
        return out


class EvidenceRouting(nn.Module):
    """Options gather evidence from the memory; they do not see each other."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(width)
        self.memory_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.attention_dropout = nn.Dropout(dropout)
        self.feedforward_norm = nn.LayerNorm(width)
        # feedforward.0 and .3 in a release, as in residual_scorer. GELU is the exact one, with erf.
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(feedforward, width),
            nn.Dropout(dropout),
        )

    def forward(self, options: Tensor, counts: Sequence[int], memories: Sequence[Tensor]) -> Tensor:
        routed = self.attention(self.query_norm(options), counts, [self.memory_norm(memory) for memory in memories])
        options = options + self.attention_dropout(routed)
        rows: Tensor = options + self.feedforward(self.feedforward_norm(options))
        return rows


class FieldDecoder(nn.Module):
    """Pre-norm decoder layer: questions see each other, then the memory (not normalised here)."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        # The names are those of torch's TransformerDecoderLayer, which the releases use.
        self.self_attn = Attention(width, heads)
        self.multihead_attn = Attention(width, heads)
        self.linear1 = nn.Linear(width, feedforward)
        self.linear2 = nn.Linear(feedforward, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, fields: Tensor, counts: Sequence[int], memories: Sequence[Tensor], alone: bool) -> Tensor:
        seen = self.norm1(fields)
        among = self.self_attn.alone(seen) if alone else self.self_attn.among(seen, counts)
        fields = fields + self.dropout(among)
        fields = fields + self.dropout(self.multihead_attn(self.norm2(fields), counts, memories))
        inner = self.dropout(functional.gelu(self.linear1(self.norm3(fields))))
        rows: Tensor = fields + self.dropout(self.linear2(inner))
        return rows


def span_means(rows: Tensor, spans: Tensor) -> Tensor:
    """Mean rows [S, d] of ``rows`` [L, d] over half-open index pairs ``spans`` [S, 2].

    Spans must be non-empty and within the rows. Summed in the rows' own precision but never below
    float32, and only over each span's own tokens, so a row far away cannot disturb a mean.
    """
    lengths = spans[:, 1] - spans[:, 0]
    owner = torch.repeat_interleave(torch.arange(len(spans), device=rows.device), lengths)
    within = torch.arange(len(owner), device=rows.device) - (lengths.cumsum(0) - lengths)[owner]
    wide = torch.promote_types(rows.dtype, torch.float32)
    taken = rows[spans[owner, 0] + within].to(wide)
    sums = taken.new_zeros(len(spans), rows.shape[-1]).index_add(0, owner, taken)
    means: Tensor = (sums / lengths.unsqueeze(-1)).to(rows.dtype)
    return means
