"""Any causal chat model of transformers whose attention is its own business: text to hidden rows.

What a family does besides (scaled embeddings, sliding windows, experts, recurrent layers) stays its own
code. Whether that code reads packed rows rightly is not looked up in a list but tried when it loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from quaver.errors import BadRelease, BadRequest
from quaver.models.backbone import Computed, Inputs, Media, Pause, Row
from quaver.models.packed import Packing, laid_out, pack, run
from quaver.models.weights import load_model

#: Kinds of layers that packed rows pass through; others mix tokens in ways of their own.
LAYERS = {"full_attention", "sliding_attention", "linear_attention", "conv"}
#: Those of them that a prompt can be continued after only where their state was kept.
RECURRENT = {"linear_attention", "conv"}
#: Tokens that the check at loading reads: ordinary text in every vocabulary we know of.
PROBE = range(80, 92)
#: What the check lets packed logits differ by, relative to their size; wrong reading changes them altogether.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.2}


class ChatBackbone:
    """A loaded ``...ForCausalLM`` or the text part of a ``...ForConditionalGeneration``; see ``Backbone``.

    ``softcap`` bounds the model's final logits, None where there is none. Raises BadRelease, with the
    reason, for a model that does not read packed rows as it reads a text by itself.
    """

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        config: Any = model.config.get_text_config(decoder=True)
        if reason := _unreadable(config):
            raise BadRelease(f"a model of type {config.model_type} cannot be read here: {reason}")
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.hidden_size: int = config.hidden_size
        self.resumable: bool = RECURRENT.isdisjoint(getattr(config, "layer_types", None) or ())
        self.softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._text: Any = model.get_decoder()
        self._embed: Any = self._text.get_input_embeddings()
        self._pack_and_check(config.model_type)

    @property
    def output_embeddings(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def prepare(self, ids: Sequence[int], media: Media | None = None) -> Inputs:
        if media is not None:
            raise BadRequest("this model reads text; ask about images, audio and videos with one that sees them")
        return Inputs(torch.tensor(ids), torch.arange(len(ids))[None])

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row], pause: Pause | None = None) -> list[Computed]:
        ids, positions = laid_out(rows, self.device)
        packing = self._packing(rows, pause)
        # Without a mask of ours transformers makes none either: it leaves that to registered attention functions.
        return run(self._text, packing, **self._embedded(rows, ids), position_ids=positions)

    def _packing(self, rows: Sequence[Row], pause: Pause | None) -> Packing:
        return Packing.of(rows, self.dtype, self.device, pause)

    def _embedded(self, _: Sequence[Row], ids: Tensor) -> dict[str, Tensor]:
        """What the text model reads of ``ids`` [T], the tokens of all rows."""
        return {"inputs_embeds": self._embed(ids)[None]}

    def _pack_and_check(self, model_type: str) -> None:
        """Packs the model, and compares its logits for two short texts, one in parts, with those from before."""
        ids = list(PROBE)
        try:
            with torch.inference_mode():
                expected = self._model(input_ids=torch.tensor([ids], device=self.device)).logits[0].float()
            pack(self._text)
            actual = [self._logits(hidden) for hidden in self._probe(ids)]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a family does that is not foreseen here
            raise BadRelease(f"a model of type {model_type} cannot be read in packed rows: {error}") from error
        for logits in actual:
            own = expected[: len(logits)]
            difference, size = (logits - own).norm(), own.norm()
            if not difference <= TOLERANCES[self.dtype] * size:
                raise BadRelease(
                    f"a model of type {model_type} reads packed rows otherwise than a text by itself (its logits, "
                    f"of norm {size:.4g}, differ by {difference:.4g}), so its answers would be wrong; this family is "
                    "not supported"
                )

    def _probe(self, ids: list[int]) -> Iterator[Tensor]:
        """Hidden rows of all of ``ids``, and of most of them in two parts."""
        text, cut, end = self.prepare(ids), 3, len(ids) - 3
        whole, first = self.forward([Row(text, 0, len(ids)), Row(text, 0, cut, cuts=(cut,), keep=cut)])
        state = first.snapshots[cut]
        [rest] = self.forward([Row(text, cut, end, past=(first.kept,), state=state, keep=cut)])
        yield whole.hidden
        yield torch.cat([first.hidden, rest.hidden])

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = (hidden @ self.output_embeddings.T).float()
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def load_chat(path: Path, device: torch.device, dtype: torch.dtype) -> ChatBackbone:
    """Loads a chat model's weights, all of them and no others, and tries them.

    Raises BadRelease for files that cannot be read, for missing, unexpected or misshapen tensors, and for
    a family that is not read rightly.
    """
    return ChatBackbone(load_model(AutoModelForCausalLM, path, device, dtype))


def _unreadable(config: Any) -> str | None:
    """Why a short text could be read rightly and a long one not, or None."""
    if other := set(getattr(config, "layer_types", None) or ()) - LAYERS:
        return f"its layers are {', '.join(sorted(other))}; known are {', '.join(sorted(LAYERS))}"
    for kind in _rope_types(getattr(config, "rope_parameters", None) or {}):
        if "dynamic" in kind or kind == "longrope":
            return f"its {kind} positions depend on the length of the prompt, so a state could not be read once for all"
    return None


def _rope_types(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Of a model, or of each kind of its layers."""
    for key, value in parameters.items():
        if key == "rope_type":
            yield value
        elif isinstance(value, Mapping):
            yield from _rope_types(value)
