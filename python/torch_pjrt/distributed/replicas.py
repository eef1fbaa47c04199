"""Replicas of DTensors, which DTensor states to be equal.

They are equal within a mesh; a mesh that is one of several dimensions has other values for other coordinates. A read of
them as one value compares them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import


class _Promised(torch.autograd.Function):
    """The identity (``pjrt_world::promised_equal``; Note [Replication analysis],
    src/engine/replication/replication.h)."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _C.promised_equal(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _promise(of_tensors: Any) -> None:
    """Patches ``full_tensor``, whose result is equal on all ranks for replicas.

    Parameters that are replicas have equal updates, but FSDP2 sends their gradients in one buffer with those of shards,
    which differ between ranks. That the buffer's parts for replicas are equal can't be derived."""
    inner = of_tensors.DTensor.full_tensor

    @functools.wraps(inner)
    def full_tensor(self: Any, **how: Any) -> torch.Tensor:
        whole = inner(self, **how)
        is_replica = any(placement.is_replicate() for placement in self.placements)
        if whole.device.type != "pjrt" or not (is_replica or self.device_mesh.size() < _C.world_size()):
            return whole
        return _Promised.apply(whole)

    of_tensors.DTensor.full_tensor = full_tensor


def _read_wholes(of_tensors: Any) -> None:
    """Patches reads and comparisons of whole tensors: PyTorch reads each rank's own part of a partial sum, and compares
    each rank's shards, because its ranks are Python processes."""
    aten = torch.ops.aten
    dispatcher = of_tensors.DTensor._op_dispatcher

    def handler(op: Any, args: Any, kwargs: Any) -> Any:
        wholes = [arg.full_tensor() if isinstance(arg, of_tensors.DTensor) else arg for arg in args]
        return op(*wholes, **kwargs)

    dispatcher._custom_op_handlers.update(
        dict.fromkeys((aten._local_scalar_dense.default, aten.equal.default), handler)
    )


def install() -> None:
    """Installs the patches; called once a world has begun."""
    after_import("torch.distributed.tensor", _promise)
    after_import("torch.distributed.tensor", _read_wholes)
