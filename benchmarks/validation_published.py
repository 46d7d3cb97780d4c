"""What the published code says of a request, in either precision: its head over transformers' own backbone.

Prompts and media are encoded by Quaver. The golden vectors hold that to the published encoding, token by token and
patch by patch, so what is compared is everything behind it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from clef_finetune._vendor import joint_schema_model as reference
from safetensors.torch import load_file
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration, Qwen3OmniMoeThinkerForConditionalGeneration

from quaver.decider.clef import MediaEncoder
from quaver.media import MediaReader
from quaver.models.backbone import Media
from quaver.models.clef import processor_of
from quaver.models.release import inspect
from quaver.prompts.clef import ClefPrompt
from quaver.prompts.encoded import Encoded
from quaver.prompts.tokenizer import PromptTokenizer
from quaver.questions import Request

TYPES: dict[str, int] = reference.QUESTION_TYPES


class Encoder:
    """Requests as the release in ``folder`` reads them, cut at ``max_length`` tokens."""

    def __init__(self, folder: Path, max_length: int) -> None:
        info = inspect(folder)
        self._media = MediaEncoder(processor_of(info), MediaReader())
        self._prompt = ClefPrompt(PromptTokenizer(info.tokenizer_file), max_length, "reference")

    def __call__(self, request: Request) -> tuple[Encoded, Media | None]:
        media = self._media(request)
        return self._prompt.encode(request, media.ids if media else ()), media


class Published:
    """The release in ``folder`` in the precision ``dtype``."""

    def __init__(self, folder: Path, dtype: str) -> None:
        precision = getattr(torch, dtype)
        self._omni = inspect(folder).backbone == "qwen3_omni_moe"
        kind = Qwen3OmniMoeThinkerForConditionalGeneration if self._omni else Qwen3_5ForConditionalGeneration
        self._backbone: Any = kind.from_pretrained(folder, dtype=precision).eval()
        self._head = reference.JointSchemaHead(**json.loads((folder / "joint_head_config.json").read_text()))
        self._head.load_state_dict(load_file(folder / "joint_head.safetensors"))
        self._head.to(precision).eval()

    @torch.inference_mode()
    def probabilities(self, encoded: Encoded, media: Media | None) -> list[list[float]]:
        """Of every question, options in the order of the prompt."""
        ids = torch.tensor([encoded.ids])
        every = torch.ones_like(ids)
        questions = [
            reference.EncodedQuestion(
                "", reference.QUESTION_TYPES[one.type], one.span, one.option_spans, one.option_ids
            )
            for one in encoded.questions
        ]
        record = reference.EncodedRecord(encoded.ids, tuple(questions), "")
        table = self._backbone.get_output_embeddings().weight
        [logits] = self._head(self._hidden(ids, every, media), ids, every, [record], table)
        return [torch.stack(tuple(row)).float().softmax(-1).tolist() for row in logits]

    def _hidden(self, ids: Tensor, every: Tensor, media: Media | None) -> Tensor:
        model, config, inputs = self._backbone.model, self._backbone.config, dict(media.tensors) if media else {}
        if self._omni:
            return self._before_the_table(input_ids=ids, attention_mask=every, use_cache=False, **inputs)
        if media is None:
            model = model.language_model  # as the published code has it for text
        else:
            kinds = (ids == config.image_token_id).long() + 2 * (ids == config.video_token_id).long()
            inputs["mm_token_type_ids"] = kinds
        hidden: Tensor = model(input_ids=ids, attention_mask=every, use_cache=False, **inputs).last_hidden_state
        return hidden

    def _before_the_table(self, **inputs: Any) -> Tensor:
        """What the output table is given. Before transformers 5.24 the thinker's ``model`` reads text alone, and takes
        media without a word."""
        given: list[Tensor] = []
        table = self._backbone.get_output_embeddings()
        hook = table.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
        try:
            self._backbone(**inputs)
        finally:
            hook.remove()
        [hidden] = given
        return hidden
