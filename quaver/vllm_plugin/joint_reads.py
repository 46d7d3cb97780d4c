"""Joint reads of Clef releases: one pooling request of vLLM's per prompt, its answer the logits of all options."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from vllm.engine.protocol import EngineClient
from vllm.inputs import EngineInput, tokens_input
from vllm.pooling_params import PoolingParams

from quaver.engine.job import Reading, not_finite
from quaver.errors import EngineFault
from quaver.prompts.encoded import Encoded
from quaver.vllm_plugin.media import VllmMedia
from quaver.vllm_plugin.record import KEY, TASK, JointRecord
from quaver.vllm_plugin.serving import final


@dataclass(frozen=True, slots=True)
class JointAsk:
    """One prompt with its questions; see ``VllmPrompt``. Prompts that differ in ``salt`` never share a prefix.
    ``reuse``: its state may come from vLLM's prefix cache."""

    encoded: Encoded
    media: VllmMedia | None = field(compare=False)
    salt: str
    reuse: bool = False

    @property
    def tokens(self) -> int:
        return len(self.encoded.ids)

    async def read(self, client: EngineClient, request_id: str, priority: int) -> Reading:
        record = JointRecord.of(self.encoded)
        asked = PoolingParams(task=TASK, skip_reading_prefix_cache=not self.reuse, extra_kwargs={KEY: record.plain()})
        result = await final(client.encode(await self._input(client), asked, request_id, priority=priority))
        if result.error is not None and result.error.retryable:
            # The engine has lost an item of media that vLLM believed it to hold, and is not believed to hold any more.
            result = await final(client.encode(await self._input(client), asked, request_id, priority=priority))
        if result.error is not None:
            raise EngineFault(f"vLLM failed on a prompt: {result.error.message}")
        logits = torch.as_tensor(result.outputs.data).flatten().double()
        if len(logits) != len(record.options):
            # The pooler of one request must not raise, so this is how it says that it could not read it.
            raise EngineFault(
                f"vLLM gave {len(logits)} numbers for {len(record.options)} options; is the model served by the quaver "
                "plugin, with VLLM_PLUGINS=quaver in every process?"
            )
        if not bool(logits.isfinite().all()):
            raise not_finite()
        reused = result.num_cached_tokens or 0
        return Reading(logits.split_with_sizes(list(record.counts)), computed=self.tokens - reused, reused=reused)

    async def _input(self, client: EngineClient) -> EngineInput:
        ids, salt = list(self.encoded.ids), self.salt or None
        if self.media is None:
            return tokens_input(ids, cache_salt=salt)
        return await self.media.input(client, ids, self.encoded.media_start, salt)
