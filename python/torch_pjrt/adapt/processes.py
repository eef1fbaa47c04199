"""Sends tensors between processes by value; memory of a device belongs to one process and is never shared.

A pjrt tensor that goes through a ``torch.multiprocessing`` queue or pipe, or is an argument of a process that is
started with spawn or forkserver, arrives as a new tensor with the same values, on the device of the same index there.
"""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor


def _rebuild(kind: type[torch.Tensor], pickled: bytes, device: str, requires_grad: bool) -> torch.Tensor:
    tensor = pickle.loads(pickled).to(device)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.device.type != "pjrt":
        return reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    # Shared memory would have to outlive this call, until the process is started.
    return _rebuild, (type(tensor), pickle.dumps(tensor.detach().cpu()), str(tensor.device), tensor.requires_grad)


def install() -> None:
    ForkingPickler.register(torch.Tensor, _reduce)
    ForkingPickler.register(torch.nn.Parameter, _reduce)
    storage = torch.UntypedStorage
    share_memory_, is_shared = storage.share_memory_, storage.is_shared

    def checked_share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "pjrt":
            raise RuntimeError(
                "the memory of a pjrt tensor can't be shared between processes; share tensor.cpu(), or send the tensor "
                "through a torch.multiprocessing queue, which copies it"
            )
        return share_memory_(self, *args, **kwargs)

    def checked_is_shared(self: torch.UntypedStorage) -> bool:
        return False if self.device.type == "pjrt" else is_shared(self)

    storage.share_memory_, storage.is_shared = checked_share_memory_, checked_is_shared
