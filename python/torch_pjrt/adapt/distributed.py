"""The device among the backends of ``torch.distributed``: its name, which whoever has an accelerator is asked for, and
a backend for its tensors in the groups of others."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C


def _refuse(*_arguments: Any) -> Any:
    raise NotImplementedError(
        "there are no collectives on device 'pjrt': torch.distributed.init_process_group('gloo') has those of tensors "
        "on the CPU"
    )


def _serve(group: Any) -> None:
    """``"gloo"`` serves the device by way of the host, ``"fake"`` as it serves all devices."""
    from torch.distributed import ProcessGroup

    cpu, ours = torch.device("cpu"), torch.device("pjrt")
    if not isinstance(group, ProcessGroup) or cpu not in group._device_types or ours in group._device_types:
        return
    backend = group._get_backend(cpu)
    if backend.name() not in ("fake", "gloo"):
        return
    served = backend if backend.name() == "fake" else _C.host_backend(backend)
    group._register_backend(ours, ProcessGroup.BackendType.CUSTOM, served)


def _serve_new_groups() -> None:
    """PyTorch has its own table of the devices that its backends are for, and gloo refuses tensors of others."""
    from torch.distributed import distributed_c10d

    inner = distributed_c10d._new_process_group_helper

    @functools.wraps(inner)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        if getattr(kwargs.get("device_id"), "type", None) == "pjrt":
            del kwargs["device_id"]  # whose backend is asked for before it is there; there is nothing to bind early
        made = inner(*args, **kwargs)
        _serve(made[0])
        return made

    distributed_c10d._new_process_group_helper = _new_process_group_helper


def install() -> None:
    if torch.distributed.is_available():
        torch.distributed.Backend.register_backend("pjrt", _refuse, devices=["pjrt"])
        _serve_new_groups()
