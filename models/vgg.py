"""VGG-16 (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

import torch
from torch import nn


class VGG16(nn.Module):
    """`width` channels in the first stage, 64 times that in the hidden linear layers; images of at least 32x32."""

    def __init__(self, width: int = 64, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for factor, convolutions in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
            for _ in range(convolutions):
                layers += [nn.Conv2d(inputs, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = factor * width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        hidden = 64 * width
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 49, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )  # fmt: skip
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))
