"""Tensors that transforms of ``torch.func`` have wrapped: batched ones, and those to differentiate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C import _functorch

from torch_pjrt.errors import CaptureError

is_wrapped: Callable[[torch.Tensor], bool] = _functorch.is_functorch_wrapped_tensor


def rewrapped(value: torch.Tensor, lift: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Returns ``value``'s wrapper around the result of ``lift`` for the tensor within.

    Raises:
        CaptureError: the result is another tensor, and ``torch.func`` differentiates with respect to the given one.
    """
    inner = _functorch.get_unwrapped(value)
    lifted = lift(inner)
    if lifted is inner:
        return value
    if _functorch.is_batchedtensor(value):
        return _functorch._add_batch_dim(lifted, _functorch.maybe_get_bdim(value), _functorch.maybe_get_level(value))
    raise CaptureError(
        f"torch.func differentiates with respect to a tensor {list(inner.shape)} that the captured function uses and "
        "does not get as an argument: give it tensor.clone()"
    )
