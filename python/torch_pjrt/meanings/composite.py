"""``@torch_pjrt.composite``: the user's groups."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from torch_pjrt.meanings.asked import is_asked
from torch_pjrt.meanings.attributes import GRADIENTS_OF, attributes_of
from torch_pjrt.meanings.grouped import grouped
from torch_pjrt.meanings.known import known

Function = TypeVar("Function", bound=Callable[..., Any])
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
RESERVED = ("aten", "chlo", "stablehlo", "torch_pjrt")


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

        known.own.add(name)
        decorated: Any = functools.wraps(function)(run)
        known.leave(decorated)
        return decorated

    return decorate
