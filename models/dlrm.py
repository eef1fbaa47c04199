"""A recommendation model after DLRM (Naumov et al., 2019): embedding bags, dot products of features, two MLPs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    """`tables` tables of `rows` rows each, `dense` dense features; returns one logit per sample, (batch)."""

    def __init__(self, rows: int = 10_000, tables: int = 8, width: int = 64, dense: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _mlp([dense, 4 * width, width])
        features = tables + 1
        rows_of, columns_of = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("pairs", rows_of * features + columns_of, persistent=False)
        self.top = _mlp([width + features * (features - 1) // 2, 4 * width, width, 1])

    def forward(self, dense: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """indices: (batch, tables, rows in a bag)."""
        x = self.bottom(dense)
        bags = [table(indices[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([x, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, products.index_select(1, self.pairs)], 1)).squeeze(1)
