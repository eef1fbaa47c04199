"""Float8 numbers with MX scales, for `./dev gpu`, too: nothing of torch.testing is imported, as it forbids flags."""

from __future__ import annotations

import torch


def in_tiles(scales: torch.Tensor) -> torch.Tensor:
    """MX scales (rows, blocks) as PyTorch's kernels take them: tiles of 128 by 4, padded, 4 rows side by side."""
    rows, blocks = scales.shape
    down, across = -(-rows // 128), -(-blocks // 4)
    padded = torch.full((down * 128, across * 4), 255, dtype=torch.uint8)
    padded[:rows, :blocks] = scales.view(torch.uint8)
    tiles = padded.view(down, 4, 32, across, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(torch.float8_e8m0fnu)


def with_mx(rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Float8 numbers, their scales in tiles, and what both are together."""
    x = torch.randn(rows, k).to(torch.float8_e4m3fn)
    scales = torch.exp2(torch.randint(-6, 7, (rows, -(-k // 32))).float()).to(torch.float8_e8m0fnu)
    return x, in_tiles(scales), x.float() * scales.float().repeat_interleave(32, 1)[:, :k]
