"""ResNet-18, ResNet-50 (He et al., 2015) and ResNeXt-50 32x4d (Xie et al., 2016)."""

from __future__ import annotations

import torch
from torch import nn


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    """Returns the projection of a shortcut whose shape changes, else None."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += shortcut
        return self.relu(y)


class Bottleneck(nn.Module):
    """1x1, then 3x3 in `groups` groups with `group_width` of `width` channels each, then 1x1 to four times `width`."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: float) -> None:
        super().__init__()
        inner = max(1, int(width * group_width)) * groups
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, width * self.expansion, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        return self.relu(y)


class ResNet(nn.Module):
    """`width` channels in the first stage, doubled from stage to stage; `blocks` per stage."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, ...],
        width: int,
        classes: int,
        groups: int = 1,
        group_width: float = 1,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(blocks):
            for position in range(count):
                stride = 2 if stage and not position else 1
                stages.append(block(inputs, width << stage, stride, groups, group_width))
                inputs = (width << stage) * block.expansion
        self.layers = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.fc(self.avgpool(self.layers(x)).flatten(1))


def resnet18(width: int = 64, classes: int = 1000, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> ResNet:
    return ResNet(BasicBlock, blocks, width, classes)


def resnet50(width: int = 64, classes: int = 1000, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> ResNet:
    return ResNet(Bottleneck, blocks, width, classes)


def resnext50(width: int = 64, classes: int = 1000, groups: int = 32, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> ResNet:
    return ResNet(Bottleneck, blocks, width, classes, groups, group_width=4 / 64)
