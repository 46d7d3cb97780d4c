"""Clef's output table: the rows of ``lm_head``, read as a lookup table and never multiplied with.

vLLM builds ``lm_head`` as a layer of linear algebra. Under a quantised backbone that layer may be allocated in the
checkpoint's packed format (ModelOpt NVFP4: two values a byte, so half the width) although the release stores
the table in full, and loading fails; where the checkpoint excludes it from quantisation it loads, but its method
cannot look rows up. ``use_output_table`` puts an embedding in its place: full width, the model's dtype, the same name.

A table that a checkpoint really stores in NVFP4 is refused. To serve one, the lookup would have to gather packed rows
of ``width / 2`` bytes, their FP8 scales (one per 16 values, in the checkpoint's plain layout, before a kernel
swizzles them) and the global scale, and dequantise the gathered rows only; and the answers would have to be
measured against the release's, because the head adds these rows to its queries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import PPMissingLayer


class OutputTable(VocabParallelEmbedding):
    """``[vocabulary, width]`` rows, split over the ranks by vocabulary; call it with token ids of any shape."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Raises ValueError for anything beside one full table, such as the scales of a quantised one."""
        loaded = set()
        for name, weight in weights:
            if name != "weight":
                raise ValueError(
                    f"{self.prefix}.{name}: the output table is read in full, so it has a weight only; "
                    "exclude lm_head from quantisation"
                )
            self.weight_loader(self.weight, weight)
            loaded.add(name)
        return loaded

    def weight_loader(self, param: Parameter, loaded_weight: Tensor) -> None:
        """Raises ValueError unless ``loaded_weight`` is the whole table, in floats of 16 bits or more."""
        expected = (self.org_vocab_size, self.embedding_dim)
        dtype = loaded_weight.dtype
        if tuple(loaded_weight.shape) != expected or not dtype.is_floating_point or dtype.itemsize < 2:
            raise ValueError(
                f"{self.prefix}.weight: the output table is {list(expected)} of floats, got "
                f"{list(loaded_weight.shape)} of {dtype}; exclude lm_head from quantisation"
            )
        super().weight_loader(param, loaded_weight)


def use_output_table(language_model: Any) -> None:
    """Makes ``language_model.lm_head`` a lookup table; call at the end of a model's ``__init__``.

    Where word embeddings are tied, it becomes the input embedding itself, as one module with two names. A pipeline
    rank without the layer is left as it is.
    """
    head = language_model.lm_head
    if isinstance(head, PPMissingLayer):
        return
    if language_model.config.tie_word_embeddings:
        language_model.lm_head = language_model.model.embed_tokens
        return
    vocabulary, width, padding, dtype = head.org_vocab_size, head.embedding_dim, head.padding_size, head.params_dtype
    del language_model.lm_head, head  # one table at a time on the device
    language_model.lm_head = OutputTable(vocabulary, width, dtype, padding_size=padding, prefix="lm_head")
