"""``to_graph`` and ``to_stablehlo``: the recorded graph and its StableHLO, without a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.program.subclasses import leaves


def _is_compiled(part: Any) -> bool:
    """Whether torch.compile or Module.compile made ``part``; functions with Dynamo disabled have an attribute alike."""
    if getattr(part, "_compiled_call_impl", None) is not None:
        return True
    return hasattr(part, "_torchdynamo_orig_callable") and not hasattr(part, "_torchdynamo_disable")


def _check_records(fn: Callable[..., Any]) -> None:
    """Raises a TypeError for compiled functions: a call of one runs a program and records nothing."""
    from torch_pjrt.capture.step import CompiledStep

    compiler = None
    parts: list[Any] = [fn]
    if isinstance(fn, torch.nn.Module):
        parts = [part for module in fn.modules() for part in (module, module.forward)]
    if any(_is_compiled(part) for part in parts):
        compiler = "torch.compile"
    elif isinstance(fn, CompiledStep):
        compiler = "compile_step"
    elif hasattr(fn, "program"):
        compiler = "jit"
    if compiler is not None:
        raise TypeError(
            f"{compiler} made this function ({getattr(fn, '__name__', type(fn).__name__)}) or a part of it: its calls "
            "run a program, and there is nothing to record. Give the function that was compiled, as it was before"
        )


def _record(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    _check_records(fn)
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.to("pjrt"), (args, kwargs))
    eager = _C.eager()
    _C.set_eager(False)
    try:
        results = leaves(leaf for leaf in pytree.tree_leaves(fn(*args, **kwargs)) if isinstance(leaf, torch.Tensor))
    finally:
        _C.set_eager(eager)
    if not results:
        raise ValueError("the function gives no tensor, so there is no program to show")
    elsewhere = {str(r.device) for r in results if r.device.type != "pjrt"}
    if elsewhere:
        raise ValueError(
            f"the function gives tensors on {', '.join(sorted(elsewhere))}; its parameters must be on 'pjrt'"
        )
    return results


def to_stablehlo(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Returns the text of the StableHLO module that computes ``fn(*args, **kwargs)``.

    Tensor arguments are moved to the device first; ``fn`` is recorded, not run. If ``fn`` is a module, its parameters
    must be on the device. The text is the program for any platform: XLA:CPU has backend-specific lowerings of a few
    ops, which ``./dev ir`` shows. Example: ``print(torch_pjrt.to_stablehlo(torch.relu, torch.ones(2, 3)))``.

    Raises:
        ValueError: ``fn`` returns no tensor, or a tensor that is not on the device.
        TypeError: ``fn`` is compiled, so that its calls record nothing.
    """
    return str(_C.stablehlo(_record(fn, args, kwargs)))


def to_graph(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Returns the recorded graph of ``fn(*args, **kwargs)``: one ATen call a line, with shapes and dtypes.

    Arguments and errors are those of ``to_stablehlo``. Example:
    ``print(torch_pjrt.to_graph(torch.relu, torch.ones(2, 3)))``.
    """
    return str(_C.graph(_record(fn, args, kwargs)))
