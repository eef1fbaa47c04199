"""The copies between devices of ``torch.nn.DataParallel``, which PyTorch implements for CUDA only.

With this backend installed and no GPU, DataParallel chooses "pjrt" for any module, as it chooses CUDA on machines with
a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _get_available_device_type, _handle_complex
from torch.nn.parallel import comm


def _scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: list[int] | None = None, dim: int = 0, streams: Any = None
) -> tuple[Tensor, ...]:
    tensor = _handle_complex(tensor)
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(chunk.to(f"pjrt:{index}") for chunk, index in zip(chunks, devices, strict=False))


def _gather(tensors: Sequence[Tensor], dim: int = 0, destination: int | str | None = None) -> Tensor:
    device = f"pjrt:{destination}" if isinstance(destination, int) and destination >= 0 else "cpu"
    return torch.cat([_handle_complex(tensor).to(device) for tensor in tensors], dim)


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int = 0) -> list[list[Tensor]]:
    return [[_handle_complex(tensor).to(f"pjrt:{index}") for tensor in tensors] for index in devices]


def _reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: int | None = None, buffer_size: int = 0
) -> tuple[Tensor, ...]:
    def total(copies: Sequence[Tensor]) -> Tensor:
        device = f"pjrt:{copies[0].device.index if destination is None else destination}"
        return functools.reduce(torch.add, [copy.to(device) for copy in copies])

    return tuple(total(copies) for copies in zip(*inputs, strict=True))


def install() -> None:
    def serve(name: str, ours: Callable[..., Any]) -> None:
        theirs = getattr(comm, name)

        @functools.wraps(theirs)
        def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            if out is not None:
                return theirs(*args, out=out, **kwargs)
            return (ours if _get_available_device_type() == "pjrt" else theirs)(*args, **kwargs)

        setattr(comm, name, function)

    serve("scatter", _scatter)
    serve("gather", _gather)
    serve("broadcast_coalesced", _broadcast_coalesced)
    serve("reduce_add_coalesced", _reduce_add_coalesced)
