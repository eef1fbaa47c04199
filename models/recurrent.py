"""Language models with PyTorch's recurrent modules."""

from __future__ import annotations

import torch
from torch import nn


class RecurrentLanguageModel(nn.Module):
    """Returns logits (batch, tokens, vocabulary) of the next token at each position."""

    def __init__(
        self,
        kind: type[nn.RNNBase] = nn.LSTM,
        vocabulary: int = 10_000,
        width: int = 256,
        layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = kind(width, width, num_layers=layers, batch_first=True, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.dropout(self.embedding(tokens)))
        return self.decoder(self.dropout(hidden))
