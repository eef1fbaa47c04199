"""Registers "pjrt" with torch: the device's name, module and methods, and the C++ core's callbacks to Python."""

from __future__ import annotations

import atexit
import functools
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch

from torch_pjrt import _C, decompositions, plugins
from torch_pjrt.adapt import (
    autocast,
    data_parallel,
    default_backend,
    detection,
    distributed,
    dtensor,
    files,
    flex_attention,
    flops,
    nested,
    optimizers,
    processes,
)
from torch_pjrt.device import accelerator, dlpack
from torch_pjrt.distributed import captured, world
from torch_pjrt.kernels import defaults
from torch_pjrt.libraries import known
from torch_pjrt.program import checks
from torch_pjrt.program.tracing_scope import WithoutReads, in_backward


def _plugin_choices() -> list[tuple[str, str]]:
    return [(plugin.name, str(plugin.path)) for plugin in plugins.default()]


def _decompose(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs an op's decomposition on the arguments; returns NotImplemented if there is none."""
    own = decompositions.every().get(name)
    if own is not None:
        return own(*args, **kwargs)
    from torch._decomp import decomposition_table  # imported late: it costs as much as the rest of the package

    namespace, _, base = name.partition("::")
    op = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    decomposition = decomposition_table.get(op)
    if decomposition is None:
        return NotImplemented
    result = decomposition(*args, **kwargs)
    return tuple(result) if isinstance(result, (tuple, list)) and len(op._schema.returns) > 1 else result


def _print_from_the_host() -> None:
    """Prints tensors from the host: printing indexes and masks its tensor, and each such call would be compiled. torch
    does the same for its other lazy devices, by a list of names."""
    import torch._tensor_str as tensor_str

    inner = tensor_str._tensor_str

    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        if self.device.type != "pjrt":
            return inner(self, indent)
        if _C.tracing():
            return "..."  # a captured subclass asked for its repr()
        ranks = _C.world_size()
        if ranks == 1 or _C.has_one_value(self):
            return inner(self.cpu(), indent)
        return f"{inner(_C.values_of_rank(self, 0), indent)}, rank='0 of {ranks}'"

    tensor_str._tensor_str = _tensor_str


def _move_lazy_modules() -> None:
    """Lets methods of lists of parameters, which lack ``.pjrt()``, move a parameter without a shape."""
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.pjrt)


def _run_backwards() -> None:
    """Notifies the core of each ``backward()`` (Note [Backward]), for which torch has no hook."""
    inner = torch.autograd.graph._engine_run_backward

    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> Any:
        with in_backward.get() or nullcontext(), WithoutReads() if _C.tracing() else nullcontext():
            return _C.run_backward(inner, args, kwargs)

    torch.autograd.graph._engine_run_backward = run
    torch.autograd._engine_run_backward = run


def _end_work() -> None:
    """Ends work in flight before the interpreter destroys its modules.

    A thread that takes the GIL while the interpreter ends is aborted, and the process with it. So daemon threads stop
    in the engine. Autograd's thread for a device lets go of a Python object after a backward (the context that torch
    took down for it), for which it takes the GIL. There is nothing to wait on: both are given the time.
    """
    if not _C.is_initialized() or _C.in_forked_child():
        return
    _C.stop_other_threads()
    for error in _C.finish():
        warnings.warn(f"pjrt: an error of values that nobody has read: {error}", stacklevel=1)
    time.sleep(0.05)


def register(module: ModuleType) -> None:
    _C.set_python_sources(_plugin_choices, _decompose)
    _C.set_truth_source(checks.assumed)
    accelerator.keep()
    torch.utils.rename_privateuse1_backend("pjrt")
    torch._register_device_module("pjrt", module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _print_from_the_host()
    _move_lazy_modules()
    files.install()
    processes.install()
    autocast.install()
    data_parallel.install()
    default_backend.install()
    detection.install()
    distributed.install()
    world.install()
    captured.install()
    dtensor.install()
    flex_attention.install()
    nested.install()
    optimizers.install()
    flops.install()
    dlpack.install()
    known.install()
    defaults.install()
    _run_backwards()
    atexit.register(_end_work)
