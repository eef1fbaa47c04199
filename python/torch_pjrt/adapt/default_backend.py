"""Sends graphs on this device to the backend ``"pjrt"``, however they reach Inductor, the default backend of
``torch.compile``, which can't compile for it."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.adapt.after_import import after_import


def is_ours(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether an input of the graph or a value in it is on the device."""
    made = (node.meta.get("example_value", node.meta.get("val")) for node in module.graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type == "pjrt" for value in (*inputs, *made))


def _compile(module: torch.fx.GraphModule, inputs: Sequence[Any], settings: Iterable[str]) -> Any:
    if settings:
        warnings.warn(
            f"torch.compile: {', '.join(sorted(settings))} (from mode or options) are Inductor's settings; a "
            "graph on 'pjrt' is compiled by backend 'pjrt', which has none of them",
            stacklevel=3,
        )
    from torch_pjrt.dynamo.backend import pjrt

    return pjrt(module, inputs)


def _in_torch_compile() -> None:
    """Patches ``torch.compile``, where Inductor need not be imported."""
    inductor = torch._TorchCompileInductorWrapper
    initialize, inner = inductor.__init__, inductor.__call__

    @functools.wraps(initialize)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        import torch_pjrt.dynamo.optimizers  # noqa: F401 - Dynamo captures before it calls the backend

        initialize(self, *arguments, **options)

    @functools.wraps(inner)
    def call(self: Any, module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        if not is_ours(module, inputs):
            return inner(self, module, inputs, **options)
        return _compile(module, inputs, self.config)

    inductor.__init__, inductor.__call__ = init, call


def _in_inductor(module: ModuleType) -> None:
    """Patches Inductor for its other callers, such as ``lookup_backend`` and ``torch._inductor.compile``."""
    inner = module.compile_fx

    @functools.wraps(inner)
    def compile_fx(model_: Any, example_inputs_: Any, *arguments: Any, **options: Any) -> Any:
        if not (isinstance(model_, torch.fx.GraphModule) and is_ours(model_, example_inputs_)):
            return inner(model_, example_inputs_, *arguments, **options)
        from torch._inductor.virtualized import V

        if V.aot_compilation:
            raise NotImplementedError(
                "AOTInductor makes no code for device 'pjrt'; torch.compile and torch_pjrt.jit compile for it"
            )
        settings = options.get("config_patches") or ()
        if not module.graph_returns_tuple(model_):  # the graph was not captured by Dynamo
            compiled = functools.partial(_compile, settings=settings)
            return module.make_graph_return_tuple(model_, example_inputs_, compiled)
        return _compile(model_, example_inputs_, settings)

    module.compile_fx = compile_fx  # type: ignore[attr-defined]


def _registered_once(module: ModuleType) -> None:
    """Lets a backend be registered twice.

    PyTorch loads a backend when it is first named, and releases the GIL while it does: each thread that names it then
    registers it, and PyTorch would refuse the second."""
    inner, lock = module.register_backend, threading.Lock()

    @functools.wraps(inner)
    def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
        with lock:
            if name is not None and compiler_fn is not None and module._COMPILER_FNS.get(name) is compiler_fn:
                return compiler_fn
            return inner(compiler_fn, name, tags)

    module.register_backend = register_backend  # type: ignore[attr-defined]


def install() -> None:
    _in_torch_compile()
    after_import("torch._inductor.compile_fx", _in_inductor)
    after_import("torch._dynamo.backends.registry", _registered_once)
