"""The device's name among the backends of ``torch.distributed``, which whoever has an accelerator is asked for."""

from __future__ import annotations

from typing import Any

import torch


def _refuse(*_arguments: Any) -> Any:
    raise NotImplementedError(
        "there are no collectives on device 'pjrt': torch.distributed.init_process_group('gloo') has those of tensors "
        "on the CPU"
    )


def install() -> None:
    if torch.distributed.is_available():
        torch.distributed.Backend.register_backend("pjrt", _refuse, devices=["pjrt"])
