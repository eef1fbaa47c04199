"""Runtime assertions, calls whose only result is a token."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import meta


@meta("_functional_assert_async.msg")
def functional_assert_async(condition: Tensor, assert_msg: str, dep_token: Tensor) -> Tensor:
    """Returns a new token. PyTorch's Meta kernel returns the given one, so that no value would depend on the call."""
    return torch.empty_like(dep_token)
