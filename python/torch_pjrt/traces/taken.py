"""The functions that return traces: ``trace(fn, ...)`` takes them, ``last_traces(compiled)`` returns stored ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.external_utils import wrap_inline
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from torch_pjrt.program.subclasses import is_subclass, leaves
from torch_pjrt.traces.region import captures
from torch_pjrt.traces.trace import Traces

_WRAPPED = wrap_inline(len).__code__
_latest: Any = WeakIdKeyDictionary()  # module, object or function -> by the method's code, Traces


def _key(compiled: Any) -> tuple[Any, Any]:
    """Returns the key in ``_latest`` of a function or module, or of the result of torch.compile for it.

    A module's key is the module itself, so two modules of one class have separate traces.
    """
    fn = getattr(compiled, "_orig_mod", None) or getattr(compiled, "_torchdynamo_orig_callable", None) or compiled
    if getattr(fn, "__code__", None) is _WRAPPED:  # Dynamo wraps a module whose forward is PyTorch's own
        fn = fn.__wrapped__
    owner = getattr(fn, "__self__", fn)
    return owner, None if isinstance(owner, torch.nn.Module) else getattr(fn, "__code__", None)


def traces_of(fn: Any) -> Traces:
    """Returns the list to which stages of ``fn``, compiled with ``options={"trace": True}``, are added."""
    owner, method = _key(fn)
    traces: Traces = _latest.setdefault(owner, {}).setdefault(method, Traces())
    return traces


def last_traces(compiled: Any) -> Traces:
    """Returns the stages of every compilation of ``compiled``.

    They are stored for functions compiled with ``options={"trace": True}`` or captured with ``trace=True``. Example:
    ``print(torch_pjrt.last_traces(step)["recorded"])``.

    Args:
        compiled: the result of ``torch.compile``, ``compile_step`` or ``jit``.

    Raises:
        ValueError: there are none, because the option was not set or the function has not been called.
    """
    traces: Traces | None
    if hasattr(compiled, "afresh"):
        traces = None if compiled.watcher is None else compiled.watcher.traces
        if not traces:
            raise ValueError(
                "no traces: compile_step(fn, trace=True) and jit(fn, examples, trace=True) keep those of each program, "
                "which a step makes when it is called; torch_pjrt.trace(it, *args) captures one more"
            )
        return traces
    owner, method = _key(compiled)
    traces = _latest.get(owner, {}).get(method)
    if traces is None:
        raise ValueError('no traces: compile with torch.compile(fn, backend="pjrt", options={"trace": True}), and call')
    return traces


def trace(fn: Callable[..., Any], *args: Any, backward: bool = True, **kwargs: Any) -> Traces:
    """Returns what ``torch.compile(fn, backend="pjrt")(*args, **kwargs)`` makes of ``fn``, stage by stage.

    ``fn`` is compiled and run once. The stages are: the graph as Dynamo captured it; forward and backward with tensor
    subclasses as values; both unrolled to plain tensors, which are the graphs that are compiled; the StableHLO of each.
    "With subclasses" and "unrolled" are two views of one pass. ``print`` shows the stages, and those in Python can be
    run: ``torch_pjrt.trace(torch.relu, torch.ones(2, 3))["forward"].python_callable()``.

    For a result of ``compile_step`` or ``jit``, one more call is captured, and the stages are: the program as recorded,
    with subclasses as values; unrolled; its StableHLO. If a step's optimizer has no state yet, two steps are taken.

    Args:
        fn: a function or a module, or a result of ``compile_step`` or ``jit``.
        backward: False traces as under ``torch.no_grad()``.

    Raises:
        TypeError: an argument is a subclass without inner tensors.
        torch_pjrt.CaptureError: ``fn`` is a captured function, and the call can't be one program.
    """
    if (afresh := getattr(fn, "afresh", None)) is not None:
        return captures(lambda: afresh(*args, **kwargs))
    for value in pytree.tree_leaves((args, kwargs)):
        if is_subclass(value) and not leaves([value]):
            raise TypeError(
                f"an argument is a {type(value).__name__}, whose __tensor_flatten__ names no tensor: torch.compile "
                "can't capture it. Give it one, if it is empty; jit and compile_step take it as it is"
            )
    traces = Traces()
    compiled = torch.compile(fn, backend="pjrt", dynamic=False, options={"trace": traces})
    eager_backward = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with eager_backward, torch.set_grad_enabled(backward and torch.is_grad_enabled()):
        compiled(*args, **kwargs)
    return traces
