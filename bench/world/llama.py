"""The Llama of examples/llama_torchrun.py, larger, and its training step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SIZES = {"WIDTH": 256, "HEADS": 8, "LAYERS": 4, "LENGTH": 64, "VOCABULARY": 512, "BATCH": 8}


def llama() -> Any:
    """Returns the example's module, with these sizes."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    import llama_torchrun

    for name, size in SIZES.items():
        setattr(llama_torchrun, name, size)
    return llama_torchrun


def train(model: Any, optimizer: Any, tokens: Any) -> Any:
    """Takes a step. Returns the loss."""
    import torch
    from torch.nn.functional import cross_entropy

    loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
