"""Rules, which compute an op of a subclass instead of its ``__torch_dispatch__`` and may define its gradient.

Autograd is above ``__torch_dispatch__`` in the dispatcher, so a rule with a gradient must be applied above autograd.
While AOTAutograd traces, and while a function is captured and there are rules, PyTorch's Python dispatcher is on: a
Python kernel at the op's Autograd key sees every call of the op, including those that a composite op (``linear``) makes
in C++. It passes calls that have a rule to an ``autograd.Function``, and other calls to the previous kernel. Nothing is
changed outside of a trace.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree

from torch_pjrt.program.subclasses import is_subclass
from torch_pjrt.traces.frames import Frames
from torch_pjrt.traces.types import type_of

KEYS = (DispatchKey.AutogradCPU, DispatchKey.AutogradCUDA, DispatchKey.AutogradPrivateUse1)


@dataclass(eq=False)
class Rule:
    """The result of ``register_rule``. ``remove()``, or leaving it as a context manager, removes the rule."""

    cls: type
    op: Any
    forward: Callable[..., Any]
    backward: Callable[..., Any] | None

    def remove(self) -> None:
        """Removes the rule. Functions compiled with it keep it. A second call does nothing."""
        if self in _rules:
            _rules.remove(self)

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


_rules: list[Rule] = []
# Held while kernels are in the ops' own tables: only one thread may change these at a time.
_lock = threading.RLock()


def are_there() -> bool:
    return bool(_rules)


def register_rule(cls: type, op: Any, forward: Callable[..., Any], backward: Callable[..., Any] | None = None) -> Rule:
    """Registers ``forward`` to compute calls of ``op`` with a tensor subclass, instead of its ``__torch_dispatch__``.

    The rule applies to functions that ``torch.compile(backend="pjrt")``, ``compile_step`` or ``jit`` compiles from now
    on. Example: ``torch_pjrt.register_rule(Quantized, torch.ops.aten.mm.default, quantized_mm)``.

    Args:
        cls: a wrapper subclass of ``torch.Tensor``.
        op: an overload, such as ``torch.ops.aten.mm.default``.
        forward: takes the op's arguments and returns the op's result for a ``cls``: the same type, shape and dtype.
        backward: takes the gradient of the result, then the op's arguments, and returns a gradient (or None) for each
            argument. Default: PyTorch's derivative of ``op``.

    Returns:
        A handle, whose ``remove()`` removes the rule.

    Raises:
        TypeError: ``cls`` is not a subclass of ``torch.Tensor``, ``op`` is not an overload, or a signature doesn't
            match; when a function is compiled, the result has another type than the subclass's own.
    """
    if not isinstance(op, torch._ops.OpOverload):
        raise TypeError(f"register_rule takes an op such as torch.ops.aten.mm.default, not {op!r}")
    if not (isinstance(cls, type) and issubclass(cls, torch.Tensor)):
        raise TypeError(f"register_rule takes a subclass of torch.Tensor, not {cls!r}")
    required = [a for a in op._schema.arguments if not a.has_default_value() and not a.kwarg_only]
    for rule, first in ((forward, 0), (backward, 1)):
        if rule is None:
            continue
        try:
            inspect.signature(rule).bind(*range(first + len(required)))
        except TypeError as error:
            takes = ", ".join((["gradient"] if first else []) + [a.name for a in required])
            raise TypeError(
                f"the rule {getattr(rule, '__name__', rule)} for {op} has to take ({takes}): {error}"
            ) from None
    made = Rule(cls, op, forward, backward)
    _rules.append(made)
    return made


def _function_of(rule: Rule, call: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    class Claimed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.save_for_backward(*(x for x in given if isinstance(x, torch.Tensor)))
            ctx.given = [None if isinstance(x, torch.Tensor) else (x,) for x in given]
            return call(rule.forward, given, kwargs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            saved = iter(ctx.saved_tensors)
            given = [next(saved) if x is None else x[0] for x in ctx.given]
            return call(rule.backward, (*gradients, *given), {})

    return Claimed


class Following:
    """Applies the rules while one graph is traced."""

    def __init__(self, recorder: Frames) -> None:
        self.recorder = recorder
        self.inside: list[Rule] = []  # rules whose forward is running
        self.checked: set[tuple[Rule, str]] = set()
        self.used: set[Rule] = set()

    def find(self, op: Any, args: Any, kwargs: Any, brings_gradient: bool) -> Rule | None:
        operands = [x for x in pytree.arg_tree_leaves(*args, **kwargs) if is_subclass(x)]
        for rule in reversed(_rules):
            if rule.op is op and rule not in self.inside and any(isinstance(x, rule.cls) for x in operands):
                return rule if (rule.backward is not None) == brings_gradient else None
        return None

    def run(self, rule: Rule, args: Any, kwargs: Any) -> Any:
        def call(function: Any, args: Any, kwargs: Any) -> Any:
            return self.recorder.claimed(rule.op, function, args, kwargs)

        self.used.add(rule)
        self.inside.append(rule)
        try:
            if rule.backward is None:
                out = call(rule.forward, args, kwargs)
            else:
                out = _function_of(rule, call, kwargs).apply(*args)
            self.check(rule, out, args, kwargs)
        finally:
            self.inside.pop()
        return out

    def below_autograd(self, op: Any, args: Any, kwargs: Any) -> Any:
        rule = self.find(op, args, kwargs, brings_gradient=False)
        return NotImplemented if rule is None else self.run(rule, args, kwargs)

    def kernel(self, op: Any, key: DispatchKey) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            rule = self.find(op, args, kwargs, brings_gradient=True)
            return op._op_dk(key, *args, **kwargs) if rule is None else self.run(rule, args, kwargs)

        return kernel

    def check(self, rule: Rule, out: Any, args: Any, kwargs: Any) -> None:
        """Raises if the subclass's own result has another type than the rule's."""
        form = ", ".join(type_of(x) for x in pytree.arg_tree_leaves(*args, **kwargs))
        if (rule, form) in self.checked:
            return
        self.checked.add((rule, form))
        with torch.no_grad(), self.recorder.unseen():
            wanted = rule.op(*args, **kwargs)
        if type_of(out) != type_of(wanted):
            raise TypeError(
                f"the rule {rule.forward.__name__} for {rule.op} of {rule.cls.__name__} gives {type_of(out)}, and "
                f"{rule.cls.__name__} itself {type_of(wanted)}"
            )


@contextmanager
def active(recorder: Frames, above_autograd: bool = False) -> Iterator[None]:
    """Applies the rules to calls in the block. ``above_autograd`` turns PyTorch's Python dispatcher on, for rules with
    a gradient where the tracer doesn't."""
    if not _rules:
        yield
        return
    following = Following(recorder)
    with _lock:
        there = list(_rules)
        ops = {rule.op for rule in there if rule.backward is not None}
        put = [(op, key) for op in ops for key in KEYS if key not in op.py_kernels]
        for op, key in put:
            op.py_kernels[key] = following.kernel(op, key)
            op._dispatch_cache.clear()
        recorder.follow = following.below_autograd
        try:
            with enable_python_dispatcher() if above_autograd and ops else nullcontext():
                yield
        finally:
            recorder.follow = None
            for op, key in put:
                del op.py_kernels[key]
                op._dispatch_cache.clear()
    for rule in there:
        if rule not in following.used:
            warnings.warn(
                f"the rule {rule.forward.__name__} for {rule.op} of {rule.cls.__name__} was not used: the op was not "
                "called with one",
                stacklevel=2,
            )
