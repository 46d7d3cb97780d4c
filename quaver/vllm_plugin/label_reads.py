"""Label reads of chat models: one token of vLLM's, of which only the probabilities of the labels are wanted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from vllm.engine.protocol import EngineClient
from vllm.inputs import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS, RequestOutputKind, SamplingParams

from quaver.engine.job import Reading, not_finite
from quaver.errors import EngineFault
from quaver.heads.labels import pooled
from quaver.prompts.label_encoded import LabelPlace
from quaver.vllm_plugin.media import VllmMedia
from quaver.vllm_plugin.serving import final


@dataclass(frozen=True, slots=True)
class LabelAsk:
    """One place of a reply; see ``VllmPrompt``. Prompts that differ in ``salt`` never share a prefix, and a prompt
    with ``media`` begins with them."""

    place: LabelPlace
    media: VllmMedia | None = field(compare=False)
    salt: str

    @property
    def tokens(self) -> int:
        return len(self.place.ids)

    async def read(self, client: EngineClient, request_id: str, priority: int) -> Reading:
        ids = [token for group in self.place.groups for token in group]
        found: dict[int, float] = {}
        cached: list[int] = []
        top = -math.inf
        # vLLM tells so many tokens at a time; the prompt's prefix is there by the second.
        for number in range(0, len(ids), MAX_LOGPROB_TOKEN_IDS):
            wanted = ids[number : number + MAX_LOGPROB_TOKEN_IDS]
            output = await self._token(client, f"{request_id}-{number}", priority, wanted)
            logprobs = _logprobs(output, wanted)
            found.update((token, logprobs[token]) for token in wanted)
            top = max(top, *logprobs.values())
            cached.append(output.num_cached_tokens or 0)
        read = pooled([[found[token] for token in group] for group in self.place.groups], top)
        return Reading(
            (torch.tensor(read.log_probabilities, dtype=torch.float64),),
            computed=self.tokens - cached[0],
            reused=cached[0],
            labels=(read,),
        )

    async def _token(self, client: EngineClient, request_id: str, priority: int, wanted: list[int]) -> RequestOutput:
        asked = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            logprob_token_ids=wanted,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        ids, salt = list(self.place.ids), self.salt or None
        prompt = await self.media.input(client, ids, 0, salt) if self.media else tokens_input(ids, cache_salt=salt)
        return await final(client.generate(prompt, asked, request_id, priority=priority))


def _logprobs(output: RequestOutput, wanted: Sequence[int]) -> Mapping[int, float]:
    """Log-probabilities in the whole vocabulary: of the wanted tokens, and of the likeliest, which was taken."""
    given = output.outputs[0] if output.outputs else None
    if given is None or not given.logprobs or given.finish_reason == "error":
        raise EngineFault("vLLM gave no token for a question; its log says more")
    logprobs = {token: value.logprob for token, value in given.logprobs[0].items()}
    if missing := [token for token in wanted if token not in logprobs]:
        raise EngineFault(f"vLLM gave no probability for the token {missing[0]} of a label; is it in its vocabulary?")
    if any(map(math.isnan, logprobs.values())):
        raise not_finite()
    return logprobs
