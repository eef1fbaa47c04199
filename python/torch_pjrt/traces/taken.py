"""How users come by traces: ``trace(fn, ...)`` takes them, ``last_traces(compiled)`` gives those that were kept."""

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
    """Of what torch.compile was given, or gave. Of a module, the module; two of one class are two."""
    fn = getattr(compiled, "_orig_mod", None) or getattr(compiled, "_torchdynamo_orig_callable", None) or compiled
    if getattr(fn, "__code__", None) is _WRAPPED:  # of a module whose forward is PyTorch's own
        fn = fn.__wrapped__
    owner = getattr(fn, "__self__", fn)
    return owner, None if isinstance(owner, torch.nn.Module) else getattr(fn, "__code__", None)


def traces_of(fn: Any) -> Traces:
    """Where the stages of ``fn``, compiled with ``options={"trace": True}``, are gathered."""
    owner, method = _key(fn)
    traces: Traces = _latest.setdefault(owner, {}).setdefault(method, Traces())
    return traces


def last_traces(compiled: Any) -> Traces:
    """The stages of what was compiled with ``options={"trace": True}``, or captured with ``trace=True``, of each time
    that it was.

    Args:
        compiled: what ``torch.compile``, ``compile_step`` or ``jit`` gave.

    Raises:
        ValueError: there are none: it was compiled without the option, or not called yet.
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
    """What ``torch.compile(fn, backend="pjrt")(*args, **kwargs)`` makes of ``fn``, stage by stage.

    ``fn`` is compiled and run once. The stages: as written (what Dynamo captured); forward and backward with subclasses
    as values; both unrolled, which are the graphs that are compiled; the StableHLO of each. "With subclasses" and
    "unrolled" are two views of one pass. ``print`` shows them; those in Python run:
    ``traces["forward"].python_callable()``.

    Of what ``compile_step`` and ``jit`` gave: the program of one more call, captured anew: as recorded, subclasses as
    values; unrolled; its StableHLO. Where a step's optimizer has no state yet, two steps are taken.

    Args:
        fn: a function or a module; or what ``compile_step`` or ``jit`` gave.
        backward: False traces as under ``torch.no_grad()``.

    Raises:
        TypeError: an argument is a subclass without inner tensors.
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
