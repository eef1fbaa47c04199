"""Groups: the calls that a function makes of tensors, as one composite.

On the device a group is a node (``engine/lower/group.h``). While AOTAutograd traces for ``torch.compile`` it is an
operator of higher order (``higher_order.py``), whose lowering makes that node. Its backward is a group, too: the
function's vector-Jacobian product, of the same tensors and of the gradients of its results. So a derivative of any
order has one, and whoever takes the place of a group gives its results and nothing else.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch.overrides import _get_current_function_mode
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.meanings.asked import OWN, SUFFIX
from torch_pjrt.program.tracing_scope import tracing

Function = TypeVar("Function", bound=Callable[..., Any])
Tensors = Sequence[torch.Tensor]
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
RESERVED = ("aten", "chlo", "stablehlo", "torch_pjrt")
GRADIENTS_OF = "gradients_of"  # attribute of a backward
# What Dynamo is to leave to AOTAutograd; whoever listens is told of each.
DECORATED: list[Callable[..., Any]] = []
LISTENERS: list[Callable[[Callable[..., Any]], None]] = []
_traced = False


@contextmanager
def traced() -> Iterator[None]:
    """AOTAutograd traces for a backend of this package."""
    global _traced
    before, _traced = _traced, True
    try:
        yield
    finally:
        _traced = before


def is_traced() -> bool:
    return _traced


def attribute(name: str, key: str, value: Any) -> str:
    """In MLIR's syntax."""
    kinds = {type(one) for one in (value if isinstance(value, (list, tuple)) else [value])}
    if isinstance(value, (list, tuple)) and kinds == {int, float}:
        value = [float(one) for one in value]
    elif len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        raise TypeError(
            f"composite '{name}': attribute '{key}' is {value!r}; attributes are numbers, strings, bools, or lists of "
            "one of them"
        )
    if isinstance(value, tuple):
        value = list(value)
    return str(_C.attribute(value))


def attributes_of(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: attribute(name, key, value) for key, value in values.items()}


def of_backward(attributes: Mapping[str, str], needed: Sequence[int], count: int) -> dict[str, str]:
    """The attributes of a backward: those of what it is the backward of, and of which operands, by number, it gives the
    gradients. It takes ``count`` gradients besides. The attribute of a second derivative is ``gradients_of_2``."""
    order = 1 + sum(key.startswith(GRADIENTS_OF) for key in attributes)
    given = {**attributes, f"{GRADIENTS_OF}_{order}" if order > 1 else GRADIENTS_OF: str(_C.attribute(list(needed)))}
    if "operands" in given:
        given["operands"] = _C.longer(given["operands"], [f"gradient.{i}" for i in range(count)])
    return given


def is_differentiable(result: torch.Tensor) -> bool:
    return result.is_floating_point() or result.is_complex()


def refuse_write(name: str, what: str) -> NoReturn:
    raise RuntimeError(
        f"composite '{name}' writes to {what}: a composite gives new tensors and changes nothing; return the new "
        "value, and write it outside"
    )


class Group:
    """A function of tensors under a name."""

    def __init__(self, name: str, attributes: Mapping[str, str], function: Callable[..., Tensors]) -> None:
        self.name, self.attributes, self.function = name, dict(attributes), function
        self.arguments: Sequence[str] = ()  # what the user calls the tensors

    def called(self, index: int) -> str:
        return f"'{self.arguments[index]}'" if index < len(self.arguments) else f"number {index}"

    def backward(self, needed: Sequence[bool], differentiable: Sequence[bool]) -> Group:
        """Takes the tensors, then the gradients of the differentiable results; gives those of the needed tensors."""

        def product(*tensors: torch.Tensor) -> Tensors:
            inputs, grads = list(tensors[: len(needed)]), tensors[len(needed) :]
            create_graph = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
            with torch.enable_grad():
                for i, wanted in enumerate(needed):
                    if wanted:
                        inputs[i] = inputs[i].view_as(inputs[i]) if create_graph else inputs[i].detach()
                        if not inputs[i].requires_grad:
                            inputs[i].requires_grad_()
                wanted_inputs = [x for x, wanted in zip(inputs, needed, strict=True) if wanted]
                results = [y for y, is_one in zip(self.function(*inputs), differentiable, strict=True) if is_one]
                pairs = [(y, g) for y, g in zip(results, grads, strict=True) if y.requires_grad]
                if not pairs:
                    return [torch.zeros_like(x) for x in wanted_inputs]
                found: Tensors = torch.autograd.grad(
                    [y for y, _ in pairs],
                    wanted_inputs,
                    [g for _, g in pairs],
                    create_graph=create_graph,
                    materialize_grads=True,
                )
            return found

        attributes = of_backward(self.attributes, [i for i, wanted in enumerate(needed) if wanted], sum(differentiable))
        return Group(self.name + SUFFIX, attributes, product)

    def record(self, tensors: Tensors) -> list[torch.Tensor]:
        """As a node of the device, without gradients."""
        with torch.no_grad():
            group = _C.Group(list(tensors))
            try:
                # A backward within runs in this thread, as part of the trace.
                with tracing(), torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
                    results = list(self.function(*group.placeholders))
                self.check(results, group.written())
                recorded: list[torch.Tensor] = group.record(
                    self.name, self.attributes, [result.detach() for result in results]
                )
            except NotImplementedError as error:
                raise NotImplementedError(
                    f"composite '{self.name}': {error}. A composite is part of a program: move this out of the function"
                ) from error
            finally:
                group.end()
        return recorded

    def check(self, results: Tensors, written: Sequence[int]) -> None:
        if written:
            what = "a tensor that is none of its arguments" if written[0] < 0 else f"argument {self.called(written[0])}"
            refuse_write(self.name, what)
        for result in results:
            if result.requires_grad:
                raise RuntimeError(
                    f"composite '{self.name}' uses a tensor that requires gradients and is none of its arguments, "
                    "which would get none: pass it as an argument"
                )
            if result.device.type != "pjrt":
                raise RuntimeError(
                    f"composite '{self.name}' gives a tensor on '{result.device}'; its tensors are on 'pjrt'"
                )


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Group, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = group.record(tensors)
        ctx.group = group
        ctx.differentiable = [is_differentiable(result) for result in results]
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(r for r, is_one in zip(results, ctx.differentiable, strict=True) if not is_one))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        given = [grad for grad, is_one in zip(grads, ctx.differentiable, strict=True) if is_one]
        found = iter(apply(ctx.group.backward(needed, ctx.differentiable), [*ctx.saved_tensors, *given]))
        return None, *(next(found) if wanted else None for wanted in needed)


def apply(group: Group, tensors: Tensors) -> Tensors:
    """The group's results, as a composite where a program can have one."""
    if _traced:
        from torch_pjrt.meanings import higher_order

        return higher_order.call(group.name, group.attributes, group.function, tensors)
    if not is_asked(group.name):  # a backward outside of the block
        return group.function(*tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        results: tuple[torch.Tensor, ...] = _Differentiable.apply(group, *tensors)
        return results
    return group.record(tensors)


def is_asked(name: str) -> bool:
    """Of this name, or of the group that it is the backward of."""
    asked = cast("_C.Composites | None", _C.asked_composites())
    return asked is not None and asked.contains(name)


def can_be(tensors: Tensors) -> bool:
    """Are these tensors what a group is for? Others (functorch's, another device's) pass through the function."""
    if not tensors or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if _traced:
        return True
    return all(
        tensor.device.type == "pjrt" and type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors
    )


def grouped(
    name: str,
    attributes: Mapping[str, str],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    called: Sequence[str],
) -> Any:
    """``function(*args, **kwargs)``, whose calls are a group of the tensors among the arguments."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if _get_current_function_mode() is not None:  # one that captures gives others in the places of these
        leaves = [leaf.view_as(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]
    if not can_be(tensors):
        return function(*args, **kwargs)
    results: list[Any] = []
    result_spec: Any = None

    def of_tensors(*given: torch.Tensor) -> Tensors:
        nonlocal results, result_spec
        values = list(leaves)
        for i, tensor in zip(places, given, strict=True):
            values[i] = tensor
        all_args, all_kwargs = pytree.tree_unflatten(values, spec)
        results, result_spec = pytree.tree_flatten(function(*all_args, **all_kwargs))
        tensors = [result for result in results if isinstance(result, torch.Tensor)]
        if not tensors:
            what = type(results[0]).__name__ if results else "nothing"
            raise TypeError(f"composite '{name}' gives no tensors, but {what}: a composite is a function of tensors")
        return tensors

    group = Group(name, attributes, of_tensors)
    group.arguments = called
    found = iter(apply(group, tensors))
    given = [next(found) if isinstance(result, torch.Tensor) else result for result in results]
    return pytree.tree_unflatten(given, result_spec)


def composite(name: str, **attributes: Any) -> Callable[[Function], Function]:
    """Gives what a function of tensors computes a name: ``@torch_pjrt.composite("my.op", eps=1e-5)``.

    Where composites of this name are asked for (``torch_pjrt.composites``), the calls that the function makes are one
    ``stablehlo.composite`` in a program's text; elsewhere it is the function that it was. It is differentiable: its
    backward is the composite ``my.op.backward``, of the function's tensors, then the gradients of its results.
    Composites may call each other. It is called on the device, within ``compile_step`` and ``jit``, and under
    ``torch.compile``, where it breaks no graph.

    The function takes tensors of any shapes and dtypes, alone or in lists, tuples and dicts, and whatever else; and
    gives tensors. It doesn't write to tensors from outside, draws no random numbers, and uses tensors that require
    gradients only where they are its arguments.

    Args:
        name: with a namespace of one's own.
        attributes: numbers, strings, bools, and lists of one of them: what a kernel should know beside the tensors.

    Raises:
        ValueError: a name without a namespace, or in PyTorch's; the name of an attribute that is taken.
        TypeError: an attribute of another kind. In a call: the function gives no tensors.
        RuntimeError: in a call: the function writes to a tensor from outside, or draws random numbers.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"composite: '{name}' has no namespace; a composite's name is like 'my.op'")
    if name.partition(".")[0] in RESERVED:
        raise ValueError(f"composite: '{name}' is in a namespace of others ({', '.join(RESERVED)}); choose your own")
    if taken := [key for key in attributes if key == "operands" or key.startswith(GRADIENTS_OF)]:
        raise ValueError(
            f"composite '{name}': '{taken[0]}' is an attribute that composites have already; choose another"
        )
    texts = attributes_of(name, attributes)

    def decorate(function: Function) -> Function:
        called = list(inspect.signature(function).parameters)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not is_asked(name):
                return function(*args, **kwargs)
            return grouped(name, texts, function, args, kwargs, called)

        OWN.add(name)
        decorated: Any = functools.wraps(function)(run)
        DECORATED.append(decorated)
        for listener in LISTENERS:
            listener(decorated)
        return decorated

    return decorate
