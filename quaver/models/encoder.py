"""The BERT encoder of a split release: token windows to hidden rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from quaver.errors import BadRelease

Window = Sequence[int]


class Encoder(nn.Module):
    """A bidirectional encoder; every window is read alone."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert
        self.hidden_size = int(bert.config.hidden_size)
        #: From the release's config: temperature of noul, choice and score questions and its growth with options.
        self.temperatures: Sequence[tuple[float, float]] = getattr(bert.config, "temperatures", ((1.0, 0.0),) * 3)

    def forward(self, windows: Sequence[Window], budget: int = 4096) -> list[Tensor]:
        """The hidden rows [tokens, hidden] of each window, in order; float32 whatever the arithmetic.

        Windows of like length are read together, at most ``budget`` tokens at a time, padding included.
        """
        rows: list[Tensor] = [torch.empty(0)] * len(windows)
        for group in groups(windows, budget):
            hidden = self._batch([windows[i] for i in group])
            for place, i in enumerate(group):
                rows[i] = hidden[place, : len(windows[i])]
        return rows

    def _batch(self, windows: Sequence[Window]) -> Tensor:
        """Hidden rows [B, longest, hidden] of one padded batch."""
        lengths = torch.tensor([len(window) for window in windows])
        ids = nn.utils.rnn.pad_sequence([torch.tensor(window) for window in windows], batch_first=True)
        # Windows of one length need no mask, and the attention is then the plain one.
        even = bool((lengths == ids.shape[1]).all())
        mask = None if even else (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long().to(self.bert.device)
        hidden: Tensor = self.bert(input_ids=ids.to(self.bert.device), attention_mask=mask).last_hidden_state
        return hidden.float()


def groups(windows: Sequence[Window], budget: int) -> Iterator[list[int]]:
    """Indices of windows to read together: shortest first, the longest at most twice the shortest plus 8."""
    group: list[int] = []
    for i in sorted(range(len(windows)), key=lambda i: len(windows[i])):
        length = len(windows[i])
        if group and (length * (len(group) + 1) > budget or length > 2 * len(windows[group[0]]) + 8):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def load_encoder(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Encoder:
    """The encoder in a release folder, for reading only.

    Raises ``BadRelease`` when the configuration or a weight is missing or the shapes disagree.
    """
    try:
        config = BertConfig.from_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise BadRelease(f"the encoder in {folder} cannot be read: {error}") from error
    bert = BertModel(config, add_pooling_layer=False)
    expected = bert.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            raise BadRelease(f"{folder / 'model.safetensors'} lacks the tensor {name}")
        if tensors[name].shape != tensor.shape:
            shape = tuple(tensors[name].shape)
            raise BadRelease(f"{folder / 'model.safetensors'} has {name} as {shape}; it must be {tuple(tensor.shape)}")
    # What an encoder was packaged with besides, such as its pooler, has no part in a split read.
    bert.load_state_dict({name: tensors[name] for name in expected})
    return Encoder(bert).to(device, dtype).eval().requires_grad_(False)
