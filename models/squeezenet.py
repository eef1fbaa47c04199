"""SqueezeNet 1.1 (Iandola et al., 2016)."""

from __future__ import annotations

import torch
from torch import nn


class Fire(nn.Module):
    """A 1x1 convolution to few channels, then a 1x1 and a 3x3 in parallel."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.squeeze(x))
        return torch.cat([self.relu(self.expand1x1(x)), self.relu(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """`width` channels in the first fire modules' expansions; images of at least 17x17."""

    def __init__(self, width: int = 64, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        w, pool = width, lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.features = nn.Sequential(
            nn.Conv2d(3, w, 3, stride=2), nn.ReLU(inplace=True), pool(),
            Fire(w, w // 4, w), Fire(2 * w, w // 4, w), pool(),
            Fire(2 * w, w // 2, 2 * w), Fire(4 * w, w // 2, 2 * w), pool(),
            Fire(4 * w, 3 * w // 4, 3 * w), Fire(6 * w, 3 * w // 4, 3 * w),
            Fire(6 * w, w, 4 * w), Fire(8 * w, w, 4 * w),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Conv2d(8 * w, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images)).flatten(1)
