"""A group: a function of tensors under a name, whose calls are one composite.

Its backward is a group, too: the function's vector-Jacobian product, on the same tensors and the gradients of its
results. Derivatives of any order are thus groups, and a replacement of a group only has to compute its results. On the
device a group is a node (``engine/lower/group.h``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import torch

from torch_pjrt import _C
from torch_pjrt.composite_ops.attributes import of_backward
from torch_pjrt.composite_ops.names import SUFFIX
from torch_pjrt.program.assertions import tied
from torch_pjrt.program.tracing_scope import tracing

Tensors = Sequence[torch.Tensor]


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
        self.arguments: Sequence[str] = ()  # the user's names of the tensors

    def called(self, index: int) -> str:
        return f"'{self.arguments[index]}'" if index < len(self.arguments) else f"number {index}"

    def backward(self, needed: Sequence[bool], differentiable: Sequence[bool]) -> Group:
        """Returns the group that takes the tensors, then the gradients of the differentiable results, and returns the
        gradients of the needed tensors."""

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
        """Records it as a node of the device, without gradients."""
        with torch.no_grad():
            group = _C.Group(list(tensors))
            try:
                # A backward within it runs in this thread, as part of the trace.
                with tracing(), torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
                    results = list(self.function(*group.placeholders))
                    self.check(results, group.written())
                    results = tied([result.detach() for result in results])
                recorded: list[torch.Tensor] = group.record(self.name, self.attributes, results)
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
