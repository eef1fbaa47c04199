"""Where the parameters of a compiled function lie."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from torch_pjrt import _C


def check_residence(values: Iterable[Any]) -> None:
    """Tells of parameters on the CPU where the device has a memory of its own: each call copies them there and, where
    it changes them, back. On a device that uses the host's memory they are used where they lie.

    Args:
        values: what a compiled function takes; all but parameters are passed over.

    Raises:
        RuntimeError: in strict mode.
    """
    parameters = [v for v in values if isinstance(v, torch.nn.Parameter) and v.device.type == "cpu"]
    if not parameters or _C.is_host_memory():
        return
    nbytes = sum(parameter.nbytes for parameter in parameters)
    file, line = _C.user_location()
    message = (
        f'what is compiled at {file}:{line} has {nbytes:,} bytes of parameters on the CPU. "pjrt" has a memory of its '
        "own here, so they are copied in each call (torch_pjrt.metrics()['host_transfer_bytes']). Move the module "
        "there once: module.to('pjrt')"
    )
    if _C.strict():
        raise RuntimeError(f"{message} (an error in strict mode)")
    warnings.warn(message, stacklevel=3)
