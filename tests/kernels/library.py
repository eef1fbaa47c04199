"""What the library that PyTorch has (oneDNN) can do on this machine."""

from __future__ import annotations

import torch

HAS_BF16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
HAS_TILES: bool = HAS_BF16 and torch.cpu._init_amx()
