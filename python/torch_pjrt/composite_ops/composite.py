"""``@torch_pjrt.composite``: composites that the user defines."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from torch_pjrt.composite_ops.asked import is_asked
from torch_pjrt.composite_ops.attributes import GRADIENTS_OF, attributes_of
from torch_pjrt.composite_ops.grouped import grouped
from torch_pjrt.composite_ops.known import known

Function = TypeVar("Function", bound=Callable[..., Any])
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
RESERVED = ("aten", "chlo", "stablehlo", "torch_pjrt")


def composite(name: str, **attributes: Any) -> Callable[[Function], Function]:
    """Decorator that makes a function of tensors a composite: ``@torch_pjrt.composite("my.op", eps=1e-5)``.

    Where composites of this name are enabled (``torch_pjrt.composites``), the function's calls are one
    ``stablehlo.composite`` in the text of a program; elsewhere the function runs undecorated. It is differentiable: its
    backward is the composite ``my.op.backward``, whose operands are the function's tensors, then the gradients of its
    results. Composites may call each other. They work on the device, in ``compile_step`` and ``jit``, and under
    ``torch.compile``, without a graph break.

    The function takes tensors of any shapes and dtypes, alone or in lists, tuples and dicts, and other values; it
    returns tensors. It must not write to tensors that it didn't make, draw random numbers, or use tensors that require
    gradients unless they are its arguments.

    Args:
        name: the composite's name, in a namespace of your own.
        attributes: parameters of a kernel besides the tensors: numbers, strings, bools, or lists of one of these types.

    Raises:
        ValueError: the name has no namespace or is in a reserved one, or the name of an attribute is reserved.
        TypeError: an attribute has another type; in a call, the function returns something else than tensors.
        RuntimeError: in a call, the function writes to a tensor that it didn't make, or draws random numbers.
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

        known.own.add(name)
        decorated: Any = functools.wraps(function)(run)
        known.leave(decorated)
        return decorated

    return decorate
