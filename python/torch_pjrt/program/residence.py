"""Checks the devices of a compiled function's parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torch_pjrt import _C


def check_residence(values: Iterable[Any]) -> None:
    """Reports parameters on the CPU that each call copies and, if it changes them, copies back.

    These are all parameters if the device has its own memory, and otherwise those at addresses that it can't use.

    Args:
        values: the arguments of a compiled function; values that aren't parameters are ignored.

    Raises:
        RuntimeError: in strict mode.
    """
    real = (v for v in values if isinstance(v, torch.nn.Parameter) and not isinstance(v, FakeTensor))
    parameters = [parameter for parameter in real if parameter.device.type == "cpu"]
    if not parameters:
        return
    if _C.is_host_memory():
        parameters = [parameter for parameter in parameters if _C.is_copied(parameter)]
        reason = "memory is used in place at multiples of 64 bytes only. Give them memory of PyTorch's"
        cure = "parameter.data = parameter.data.clone()"
    else:
        reason = '"pjrt" has a memory of its own here. Move the module there'
        cure = "module.to('pjrt')"
    if not parameters:
        return
    nbytes = sum(parameter.nbytes for parameter in parameters)
    file, line = _C.user_location()
    message = (
        f"what is compiled at {file}:{line} has {nbytes:,} bytes of parameters on the CPU that are copied in each call "
        f"(torch_pjrt.metrics()['host_transfer_bytes']): {reason} once: {cure}"
    )
    if _C.strict():
        raise RuntimeError(f"{message} (an error in strict mode)")
    warnings.warn(message, stacklevel=3)
