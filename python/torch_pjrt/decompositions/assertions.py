"""Assertions: calls whose only result is a token."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import meta


@meta("_functional_assert_async.msg")
def functional_assert_async(condition: Tensor, assert_msg: str, dep_token: Tensor) -> Tensor:
    """A token of its own. PyTorch's Meta kernel gives the one that it is given: then nobody would need the call."""
    return torch.empty_like(dep_token)
