"""Float8 values with MX scales, used by `./dev gpu` as well: it doesn't import torch.testing, which freezes flags."""

from __future__ import annotations

import torch


def in_tiles(scales: torch.Tensor) -> torch.Tensor:
    """Returns MX scales (rows, blocks) in the tiles of PyTorch's kernels: 128 by 4, padded, with 4 rows interleaved."""
    rows, blocks = scales.shape
    down, across = -(-rows // 128), -(-blocks // 4)
    padded = torch.full((down * 128, across * 4), 255, dtype=torch.uint8)
    padded[:rows, :blocks] = scales.view(torch.uint8)
    tiles = padded.view(down, 4, 32, across, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(torch.float8_e8m0fnu)


def with_mx(rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns float8 values, their scales in tiles, and the products of both."""
    x = torch.randn(rows, k).to(torch.float8_e4m3fn)
    scales = torch.exp2(torch.randint(-6, 7, (rows, -(-k // 32))).float()).to(torch.float8_e8m0fnu)
    return x, in_tiles(scales), x.float() * scales.float().repeat_interleave(32, 1)[:, :k]
