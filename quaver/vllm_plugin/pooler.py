"""The joint schema head as vLLM's pooler: the rows of all prompts that end in a step, read in one pass.

A request carries its record (``quaver.vllm_plugin.record``) and gets flat float32 logits. What has no valid record
(a profiling pass, a request of another route) gets an empty output, because an error raised here would end the
engine for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor
from vllm.logger import init_logger
from vllm.model_executor.layers.pooler import Pooler, PoolingParamsUpdate
from vllm.model_executor.layers.pooler.tokwise.methods import TokenPoolingMethod
from vllm.pooling_params import PoolingParams
from vllm.tasks import PoolingTask
from vllm.v1.pool.metadata import PoolingMetadata

from quaver.heads.joint_schema import HeadInput, JointSchemaHead, span_means
from quaver.vllm_plugin.record import KEY, TASK, JointRecord

logger = init_logger(__name__)

#: Rows are widened to float32 in slices of so many, so a long prompt needs no second copy of itself.
SLICE = 4096


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One prompt to be read: its place in the step, its record, hidden rows [L, hidden] and the ids of its tokens."""

    index: int
    record: JointRecord
    hidden: Tensor
    ids: Tensor


class JointPooler(Pooler):
    """``rows`` gives the hidden rows of every prompt that ends in a step, ``lexical`` the output embeddings
    [..., hidden] of token ids.

    A pipeline stage without the last layer has no head: its pooler says what is supported and is never run.
    """

    def __init__(
        self,
        head: JointSchemaHead | None = None,
        rows: TokenPoolingMethod | None = None,
        lexical: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.rows = rows
        self._lexical = lexical

    def get_supported_tasks(self) -> Set[PoolingTask]:
        return {TASK}

    def get_pooling_updates(self, task: PoolingTask) -> PoolingParamsUpdate:  # noqa: ARG002
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: Tensor, pooling_metadata: PoolingMetadata) -> list[Tensor | None]:
        """Logits [options] of every prompt that ends in this step, None for the others."""
        assert self.rows is not None
        lengths = pooling_metadata.prompt_lens.tolist()
        # A prompt that was pushed out half read is read anew, and vLLM gives the rows of both times.
        pooled = [
            None if rows is None else rows[-length:]
            for rows, length in zip(self.rows(hidden_states, pooling_metadata), lengths, strict=True)
        ]
        ids = pooling_metadata.get_prompt_token_ids_cpu()
        outputs = [None if rows is None else torch.empty(0) for rows in pooled]
        prompts = []
        for index, (rows, params) in enumerate(zip(pooled, pooling_metadata.pooling_params, strict=True)):
            if rows is None or (record := _record(params, len(rows))) is None:
                continue
            prompts.append(_Prompt(index, record, rows, ids[index]))
        if prompts:
            # Every rank takes part in the look-up, so it comes before anything that can fail on one of them.
            logits = self._read(prompts, self._lexical_rows(prompts))
            for prompt, row in zip(prompts, logits, strict=True):
                outputs[prompt.index] = row
        return outputs

    def _read(self, prompts: Sequence[_Prompt], lexical: Sequence[Tensor]) -> list[Tensor]:
        """Logits of every prompt; together, or one by one when that fails, and empty where it fails again."""
        assert self.head is not None
        try:
            return self.head([self._input(prompt, rows) for prompt, rows in zip(prompts, lexical, strict=True)])
        except RuntimeError:  # out of memory, mostly
            logger.exception("the head failed on prompts of %s tokens", [len(prompt.hidden) for prompt in prompts])
        if len(prompts) == 1:
            return [torch.empty(0)]
        return [self._read([prompt], [rows])[0] for prompt, rows in zip(prompts, lexical, strict=True)]

    def _lexical_rows(self, prompts: Sequence[_Prompt]) -> list[Tensor]:
        """Per prompt the mean output embedding of every option's tokens, [options, hidden] float32; one look-up."""
        assert self._lexical is not None
        device = prompts[0].hidden.device
        spans, ids, at = [], [], 0
        for prompt in prompts:
            for begin, end in prompt.record.options:
                ids.append(prompt.ids[len(prompt.ids) + begin : len(prompt.ids) + end])
                spans.append((at, at := at + end - begin))
        rows = self._lexical(torch.cat(ids).to(device)).float()
        means = span_means(rows, torch.tensor(spans, device=device))
        return list(means.split_with_sizes([len(prompt.record.options) for prompt in prompts]))

    def _input(self, prompt: _Prompt, lexical: Tensor) -> HeadInput:
        assert self.head is not None
        head, record, device = self.head, prompt.record, prompt.hidden.device
        memory = [head.project_memory(head.normalise(part.float())) for part in torch.split(prompt.hidden, SLICE)]
        tail = head.normalise(prompt.hidden[record.state_end :].float())
        spans = torch.tensor(record.questions + record.options, device=device) - record.state_end
        question, context = span_means(tail, spans).split_with_sizes([len(record.questions), len(record.options)])
        owner = torch.repeat_interleave(torch.arange(len(record.counts)), torch.tensor(record.counts))
        return HeadInput(
            memory=torch.cat(memory),
            question=question,
            context=context,
            lexical=lexical,
            summary=tail[-1],
            anchor=question + tail[-1],
            types=torch.tensor(record.types, device=device),
            owner=owner.to(device),
        )


def _record(params: PoolingParams, length: int) -> JointRecord | None:
    carried = (params.extra_kwargs or {}).get(KEY)
    if carried is None:
        return None
    try:
        return JointRecord.parse(carried, length)
    except ValueError as error:
        logger.warning("a prompt of %d tokens is not read: %s", length, error)
        return None
