"""AlexNet, after "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014)."""

from __future__ import annotations

import torch
from torch import nn


class AlexNet(nn.Module):
    """`width` channels after the first convolution, 64 times that in hidden linear layers; images of at least 63x63."""

    def __init__(self, width: int = 64, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        w, hidden = width, 64 * width
        self.features = nn.Sequential(
            nn.Conv2d(3, w, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(w, 3 * w, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(3 * w, 6 * w, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(6 * w, 4 * w, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(4 * w, 4 * w, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(4 * w * 36, hidden), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))
