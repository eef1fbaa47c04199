"""PyTorch programs, unmodified, on every XLA device.

``import torch`` is enough: the ``torch.backends`` entry point loads this package, after which ``device="pjrt"`` works.
The functions here tell what the device does; the device's own module is ``torch.pjrt``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_pjrt.capture import compile_step, jit  # type: ignore[no-redef]
    from torch_pjrt.cpp_extension import include_path, library_path
    from torch_pjrt.files import export, load
    from torch_pjrt.kernels.register import register_kernel
    from torch_pjrt.meanings.composite import composite
    from torch_pjrt.meanings.switch import composites
    from torch_pjrt.report import explain
    from torch_pjrt.traces import last_traces, register_rule, trace, tracing


def _autoload() -> None:
    """The entry point of group ``torch.backends``.

    torch asks for it at the end of ``import torch``, which may be the one below: so it stands first.
    """


import torch  # noqa: E402

from torch_pjrt import cores  # noqa: E402

__path__ += cores.folders()  # where a wheel has torch_pjrt._C; a checkout has it here

from torch_pjrt import _C, plugins, registration  # noqa: E402
from torch_pjrt.device import module as device_module  # noqa: E402
from torch_pjrt.device.conversion import to_eager, to_lazy  # noqa: E402
from torch_pjrt.device.dlpack import from_dlpack  # noqa: E402
from torch_pjrt.errors import CaptureError  # noqa: E402
from torch_pjrt.program.metrics import Metrics  # noqa: E402
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
    "composite": "meanings.composite",
    "composites": "meanings.switch",
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
    """What few programs use is imported when it is asked for: ``import torch`` pays for the rest."""
    if name not in _LATE:
        raise AttributeError(f"module 'torch_pjrt' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"torch_pjrt.{_LATE[name]}"), name)


def init(plugin: str | None = None) -> None:
    """Starts the PJRT client now, instead of at the first use of data.

    Args:
        plugin: name of an installed plugin or path of a shared library; default: a GPU plugin that finds a device, else
            ``xla-cpu-pjrt``.

    Raises:
        torch_pjrt.plugins.PluginNotFoundError: no such plugin.
        RuntimeError: the plugin can't be loaded or is too old, or another one is running already.
    """
    if plugin is None:
        _C.plugin()
        return
    found = plugins.resolve(plugin)
    _C.init(found.name, str(found.path))


def sync(tensors: torch.Tensor | Iterable[torch.Tensor] | None = None) -> None:
    """Starts what is pending. Does not wait for the device: ``torch.pjrt.synchronize`` does.

    Args:
        tensors: a tensor of any shape and dtype on a pjrt device, or several; what they need is started. Default:
            everything that is pending, on every device.

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
    """What was counted since the start or the last ``reset_metrics()``; ``explain()`` tells of each run.

    A dict, which ``print`` shows as a table.

    - ``ops_recorded``: ATen calls that became part of a graph.
    - ``graphs_compiled``, ``graphs_loaded_from_disk``: programs that were new to this process.
    - ``executions``, ``nodes_executed``: runs of programs, and the ATen calls in them.
    - ``graphs_run_by_calls``: runs of graphs that had not paid for their compile
      (``TORCH_PJRT_COMPILE=auto``).
    - ``calls_on_host``: calls in them that the host did for a device with a memory of its own: of a few integers, and
      of graphs that grow.
    - ``host_fallbacks``: a dict from op to calls that ran on the host.
    - ``syncs``, ``syncs_by_cause``: how often pending work was run, and a dict that tells why: ``"read of an element"``
      (``item()``, ``bool()``, ``if``), ``"copy to the host"`` (``cpu()``, ``numpy()``, ``print``),
      ``"optimizer step"``, ``"torch_pjrt.sync"``, ….
    - ``collectives``, ``collective_bytes``: what ranks took part in together: dicts from the kind to calls, and to
      bytes that each rank gave. ``"all_reduce"`` is of a world in one process, ``"c10d::allreduce_"`` of processes.
    - ``host_transfer_bytes``: copied between host and device, both ways.
    - ``copies_on_write``: of memory shared with JAX, before it was written to (``torch_pjrt.jax``).
    - ``record_seconds``: in recording. An estimate: the first call of each kind is timed, of the others one in 61.
    - ``compile_seconds``: from recorded graphs to new executables, whether compiled or loaded from disk.
    - ``prepare_seconds``: finding known programs and binding their arguments.
    - ``execute_seconds``: in PJRT's execute call, which on most devices only starts the program.
    """
    return Metrics(_C.metrics())


def reset_metrics() -> None:
    """Sets every count back to zero."""
    _C.reset_metrics()


class strict_mode:
    """Under it a host fallback is an error: ``with torch_pjrt.strict_mode(): ...``.

    The call that would have run on the host raises a ``RuntimeError``. ``TORCH_PJRT_STRICT=1`` does the same for a
    whole process.

    Args:
        enabled: False allows fallbacks in the block.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.before = _C.strict()
        _C.set_strict(self.enabled)

    def __exit__(self, *exception: object) -> None:
        _C.set_strict(self.before)


class eager_mode:
    """Under it every call is run, and waited for, as soon as it is recorded. What fails raises at its line.

    ``torch_pjrt.eager_mode()`` sets it for the process, ``with torch_pjrt.eager_mode(): ...`` for a block,
    ``TORCH_PJRT_EAGER=1`` from the start. Results are those of lazy mode; each call is a program of its own, compiled
    once and kept in the same caches. What is pending already stays so until it is used.

    Args:
        enabled: False goes back to lazy mode.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.before = _C.eager()
        _C.set_eager(enabled)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _C.set_eager(self.before)


registration.register(device_module)
if os.environ.get("TORCH_PJRT_COMPOSITES"):
    from torch_pjrt.meanings.switch import ask_for_environment

    ask_for_environment()
