"""A U-Net (Ronneberger et al., 2015) as it is built today: padded convolutions, group norm, bilinear upsampling."""

from __future__ import annotations

import torch
from torch import nn


def _convolutions(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """`width` channels at full resolution, doubled at each of `depth` halvings. Returns a value per pixel and class."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 1) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_convolutions(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.narrow = nn.ModuleList(nn.Conv2d(2 * w, w, 1) for w in widths[-2::-1])
        self.up = nn.ModuleList(_convolutions(2 * w, w) for w in widths[-2::-1])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = []
        for level, block in enumerate(self.down):
            if level:
                x = nn.functional.max_pool2d(x, 2)
            x = block(x)
            skipped.append(x)
        skipped.pop()
        for narrow, block in zip(self.narrow, self.up, strict=True):
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = block(torch.cat([skipped.pop(), narrow(x)], 1))
        return self.out(x)
