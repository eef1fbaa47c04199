"""PyTorch programs, unmodified, on every XLA device.

``import torch`` is enough: the ``torch.backends`` entry point loads this package, after which ``device="pjrt"`` works::

    import torch

    x = torch.ones(2, 3, device="pjrt")
    print((x @ x.T).relu())

The names of this package, by task (``torch.pjrt`` is the device module, the counterpart of ``torch.cuda``):

- move data: ``to_lazy``, ``to_eager``, ``from_dlpack``
- run: ``init``, ``sync``, ``eager_mode``, ``strict_mode``
- compile: ``compile_step``, ``jit``; or ``torch.compile(fn, backend="pjrt")``
- export: ``export``, ``load``; ``include_path`` and ``library_path`` for C++
- inspect: ``explain``, ``metrics``, ``reset_metrics``, ``to_graph``, ``to_stablehlo``, ``trace``, ``last_traces``,
  ``tracing``
- extend: ``composite``, ``composites``, ``register_kernel``, ``register_rule``
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_pjrt.capture import compile_step, jit  # type: ignore[no-redef]
    from torch_pjrt.composite_ops.composite import composite
    from torch_pjrt.composite_ops.switch import composites
    from torch_pjrt.cpp_extension import include_path, library_path
    from torch_pjrt.files import export, load
    from torch_pjrt.kernels.register import register_kernel
    from torch_pjrt.report import explain
    from torch_pjrt.traces import last_traces, register_rule, trace, tracing


def _autoload() -> None:
    """Does nothing: the entry point of the group ``torch.backends``, whose look-up imports this package.

    It is defined before ``import torch`` below, because torch looks it up at the end of that import.
    """


import torch  # noqa: E402

from torch_pjrt import cores  # noqa: E402

__path__ += cores.folders()  # a wheel has torch_pjrt._C there; a checkout has it in this folder

from torch_pjrt import _C, plugins, registration  # noqa: E402
from torch_pjrt.device import module as device_module  # noqa: E402
from torch_pjrt.device.conversion import to_eager, to_lazy  # noqa: E402
from torch_pjrt.device.dlpack import from_dlpack  # noqa: E402
from torch_pjrt.errors import CaptureError  # noqa: E402
from torch_pjrt.program.metrics import Metrics as _Metrics  # noqa: E402
from torch_pjrt.recorded import to_graph, to_stablehlo  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "CaptureError",
    "compile_step",
    "composite",
    "composites",
    "eager_mode",
    "explain",
    "export",
    "from_dlpack",
    "include_path",
    "init",
    "jit",
    "last_traces",
    "library_path",
    "load",
    "metrics",
    "register_kernel",
    "register_rule",
    "reset_metrics",
    "strict_mode",
    "sync",
    "to_eager",
    "to_graph",
    "to_lazy",
    "to_stablehlo",
    "trace",
    "tracing",
]


_LATE = {
    "compile_step": "capture",
    "composite": "composite_ops.composite",
    "composites": "composite_ops.switch",
    "explain": "report",
    "export": "files",
    "include_path": "cpp_extension",
    "jit": "capture",
    "last_traces": "traces",
    "library_path": "cpp_extension",
    "load": "files",
    "register_kernel": "kernels.register",
    "register_rule": "traces",
    "trace": "traces",
    "tracing": "traces",
}


def __getattr__(name: str) -> Any:
    """Imports the names of ``_LATE`` on first use, to keep ``import torch`` fast."""
    if name not in _LATE:
        raise AttributeError(f"module 'torch_pjrt' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"torch_pjrt.{_LATE[name]}"), name)


def __dir__() -> list[str]:
    """Lists the names of ``_LATE``, too, so that ``help(torch_pjrt)`` and completion show them."""
    return sorted({*globals(), *_LATE})


def init(plugin: str | None = None) -> None:
    """Starts the PJRT client now, instead of at the first use of data.

    Example: ``torch_pjrt.init("xla_cpu_pjrt")``.

    Args:
        plugin: the name of an installed plugin or the path of a shared library. Default: a GPU plugin that finds a
            device, else ``xla_cpu_pjrt``.

    Raises:
        torch_pjrt.plugins.PluginNotFoundError: no such plugin is installed.
        RuntimeError: the plugin can't be loaded or is too old, or another one is already running.
    """
    if plugin is None:
        _C.plugin()
        return
    found = plugins.resolve(plugin)
    _C.init(found.name, str(found.path))


def sync(tensors: torch.Tensor | Iterable[torch.Tensor] | None = None) -> None:
    """Starts pending work without waiting for the device; ``torch.pjrt.synchronize`` waits.

    Example: ``torch_pjrt.sync(loss)``.

    Args:
        tensors: one or more tensors of any shape and dtype on pjrt devices. Only the work that they depend on is
            started. Default: all pending work, on every device.

    Raises:
        RuntimeError: a tensor is on another device, or a program can't be compiled or started.
    """
    if tensors is None:
        _C.start_all("torch_pjrt.sync")
    else:
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in given):
            from torch_pjrt.program.subclasses import leaves

            given = leaves(given)
        _C.sync(given, "torch_pjrt.sync")


def metrics() -> dict[str, Any]:
    """Returns the counters of this process since its start or the last ``reset_metrics()``.

    The result is a dict that ``print`` shows as a table; ``explain()`` reports single runs. Example:
    ``torch_pjrt.metrics()["syncs"]``.

    - ``ops_recorded``: ATen calls that became part of a graph.
    - ``graphs_compiled``, ``graphs_loaded_from_disk``: programs that were new to this process.
    - ``executions``, ``nodes_executed``: runs of programs, and the ATen calls in them.
    - ``graphs_interpreted``: graphs that were interpreted, because compiling them would not have been amortized yet
      (``TORCH_PJRT_COMPILE=auto``).
    - ``calls_on_host``: calls of interpreted graphs that ran on the host although the device has its own memory: of
      graphs on a few integers, and of graphs with dynamic shapes.
    - ``host_fallbacks``: a dict from op to the number of its calls that ran on the host.
    - ``syncs``, ``syncs_by_cause``: how often pending work was run, and a dict from the cause to its number:
      ``"read of an element"`` (``item()``, ``bool()``, ``if``), ``"copy to the host"`` (``cpu()``, ``numpy()``,
      ``print``), ``"optimizer step"``, ``"torch_pjrt.sync"``, ….
    - ``collectives``, ``collective_bytes``: dicts from the kind of a collective to the number of calls, and to the
      bytes that each rank contributed. ``"all_reduce"`` counts those of a world in one process,
      ``"c10d::allreduce_"`` those between processes.
    - ``host_transfer_bytes``: bytes copied between host and device, in both directions.
    - ``copies_on_write``: copies of memory shared with JAX, made before it was written to (``torch_pjrt.jax``).
    - ``record_seconds``: estimated time spent recording. The first call of each kind is timed, and one in 61 of the
      others.
    - ``compile_seconds``: time from recorded graphs to new executables, compiled or loaded from disk.
    - ``prepare_seconds``: time spent looking up known programs and binding their arguments.
    - ``execute_seconds``: time in PJRT's execute call, which on most devices only starts the program.
    """
    return _Metrics(_C.metrics())


def reset_metrics() -> None:
    """Sets every counter of ``metrics()`` to zero. Example: ``torch_pjrt.reset_metrics()``."""
    _C.reset_metrics()


class strict_mode:
    """Context manager under which a host fallback is an error: ``with torch_pjrt.strict_mode(): ...``.

    ``TORCH_PJRT_STRICT=1`` has this effect for the whole process.

    Args:
        enabled: False allows fallbacks in the block.

    Raises:
        RuntimeError: in the block, an op would have run on the host.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.before = _C.strict()
        _C.set_strict(self.enabled)

    def __exit__(self, *exception: object) -> None:
        _C.set_strict(self.before)


class eager_mode:
    """Runs every call as soon as it is recorded and waits for it, so that an error is raised at the line of its call.

    ``torch_pjrt.eager_mode()`` sets it for the process, ``with torch_pjrt.eager_mode(): ...`` for a block, and
    ``TORCH_PJRT_EAGER=1`` from the start of the process. Results equal those of lazy mode. Each call is a program of
    its own, compiled once and stored in the same caches. Work that is already pending stays pending until it is used.

    Args:
        enabled: False returns to lazy mode.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.before = _C.eager()
        _C.set_eager(enabled)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _C.set_eager(self.before)


_RENAMED = {  # settings whose old names have no effect
    "TORCH_PJRT_KERNELS": "TORCH_PJRT_LIBRARY_KERNELS",
    "TORCH_PJRT_LATE": "TORCH_PJRT_COLLECTIVE_WARN_SECONDS",
    "TORCH_PJRT_LIBRARIES": "TORCH_PJRT_AUTOSELECT",
    "TORCH_PJRT_PLUGINS": "TORCH_PJRT_PLUGIN_PATH",
    "TORCH_PJRT_PROGRESS": "TORCH_PJRT_COMPILE_LOG_SECONDS",
}
for _old in _RENAMED.keys() & os.environ.keys():
    warnings.warn(f"{_old} has no effect: the setting is called {_RENAMED[_old]}", stacklevel=2)

registration.register(device_module)
if os.environ.get("TORCH_PJRT_COMPOSITES"):
    from torch_pjrt.composite_ops.switch import ask_for_environment

    ask_for_environment()
