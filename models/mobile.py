"""MobileNetV2 (Sandler et al., 2018), MNASNet 1.0 (Tan et al., 2018): inverted residuals of depthwise convolutions."""

from __future__ import annotations

import torch
from torch import nn


def _normalized(
    inputs: int, outputs: int, kernel: int, activation: type[nn.Module] | None, **options: int
) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **options), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class InvertedResidual(nn.Module):
    """Widens by `expansion`, applies a depthwise convolution, narrows, and adds its input if the shapes are equal."""

    def __init__(
        self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, activation: type[nn.Module]
    ) -> None:
        super().__init__()
        inner = inputs * expansion
        widen = [_normalized(inputs, inner, 1, activation)] if expansion != 1 else []
        self.layers = nn.Sequential(
            *widen,
            _normalized(inner, inner, kernel, activation, stride=stride, groups=inner),
            _normalized(inner, outputs, 1, None),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNet(nn.Module):
    """Stages: (expansion, channels, blocks, stride, kernel), at most `most_blocks` blocks, channels times `width`."""

    def __init__(
        self,
        stages: tuple[tuple[int, int, int, int, int], ...],
        activation: type[nn.Module],
        width: float,
        classes: int,
        dropout: float,
        most_blocks: int,
    ) -> None:
        super().__init__()
        scaled = lambda channels: max(1, int(channels * width))  # noqa: E731
        inputs = scaled(32)
        layers: list[nn.Module] = [_normalized(3, inputs, 3, activation, stride=2)]
        for expansion, channels, blocks, stride, kernel in stages:
            for block in range(min(blocks, most_blocks)):
                step = 1 if block else stride
                layers.append(InvertedResidual(inputs, scaled(channels), expansion, kernel, step, activation))
                inputs = scaled(channels)
        layers.append(_normalized(inputs, scaled(1280), 1, activation))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(scaled(1280), classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


def mobilenet_v2(width: float = 1, classes: int = 1000, dropout: float = 0.2, most_blocks: int = 4) -> MobileNet:
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return MobileNet(stages, nn.ReLU6, width, classes, dropout, most_blocks)


def mnasnet(width: float = 1, classes: int = 1000, dropout: float = 0.2, most_blocks: int = 4) -> MobileNet:
    stages = (
        (1, 16, 1, 1, 3), (3, 24, 3, 2, 3), (3, 40, 3, 2, 5), (6, 80, 3, 2, 5), (6, 96, 2, 1, 3), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return MobileNet(stages, nn.ReLU, width, classes, dropout, most_blocks)
