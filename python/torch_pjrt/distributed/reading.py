"""Reads the values of single ranks."""

from __future__ import annotations

import torch

from torch_pjrt import _C


def rank_values(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns copies on the CPU of each rank's values of a tensor on the device, in the order of the ranks.

    For a DTensor these are the ranks' shards. Without a world there is one copy; with a process for each rank
    (torchrun), it is this process's.

    Raises:
        ValueError: the tensor is not on the device.
    """
    local = getattr(tensor, "_local_tensor", tensor).detach()
    if hasattr(local, "trigger_wait"):  # the result of a functional collective, and of a module of tensor parallelism
        local = local.trigger_wait()
    if local.device.type != "pjrt":
        raise ValueError(f"rank_values: a tensor on {local.device}; the ranks of a world have values on 'pjrt'")
    return [_C.values_of_rank(local, rank) for rank in range(_C.world_size())]
