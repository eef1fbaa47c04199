"""Every composite of an op, forward and backward, claimed by a kernel that is the op itself: seen to run, the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.kernels import entries
from torch_pjrt import _C
from torch_pjrt.kernels.call import Call
from torch_pjrt.meanings.names import KEPT, STEPS

SUFFIX = ".backward"


class Itself:
    """A kernel that is the op."""

    def __init__(self, name: str) -> None:
        self.name = name
        namespace, op, overload = name.removesuffix(SUFFIX).split(".")
        self.op = getattr(getattr(getattr(torch.ops, namespace), op), overload)
        self.call: Call | None = None

    def when(self, call: Call) -> bool | str:
        self.call = call
        return "random_key" not in call.attributes.get("operands", ()) or "it draws"

    def values(self, tensors: list[torch.Tensor]) -> dict[str, Any]:
        """The arguments of the op."""
        assert self.call is not None
        declared = self.op._schema.arguments
        names = self.call.attributes.get("operands") or [a.name for a in declared if "Tensor" in str(a.type)]
        values: dict[str, Any] = {a.name: a.default_value for a in declared}
        for a in declared:
            if a.name in self.call.attributes and a.name != "memory_format":
                value = self.call.attributes[a.name]
                is_dtype = isinstance(value, str) and hasattr(torch, value)
                values[a.name] = getattr(torch, value) if is_dtype else value
        for name, tensor in zip(names, tensors, strict=False):
            base, _, index = name.partition(".")
            if index:
                values[base] = [*(values[base] or []), None][: int(index)]
                values[base] += [None] * (int(index) - len(values[base])) + [tensor]
            else:
                values[base] = tensor
        return values

    def __call__(self, *tensors: torch.Tensor, **_: Any) -> Any:
        if not self.name.endswith(SUFFIX):
            return self.results(list(tensors))
        assert self.call is not None
        wanted = self.call.attributes["gradients_of"]
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors)]
            results = [y for y in self.results(inputs) if y.is_floating_point()]
            grads = tensors[len(tensors) - len(results) :]
            return torch.autograd.grad(results, [inputs[i] for i in wanted], grads)

    def results(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        values = self.values(tensors)
        declared = self.op._schema.arguments
        written = [a.name for a in declared if a.alias_info is not None and a.alias_info.is_write]
        if self.name in ("aten.native_batch_norm.default", "aten.instance_norm.default"):  # whose schemas don't say so
            written = [name for name in ("running_mean", "running_var") if values[name] is not None]
        for name in written:
            given = values[name]
            values[name] = [t.clone() for t in given] if isinstance(given, list) else given.clone()
        made = self.op(**values)
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        return [*(y for y in made if y is not None), *(t for name in written for t in (values[name] if isinstance(values[name], list) else [values[name]]))]


OPS = [name for name in entries.SAMPLES if name in entries.OPS]
PARTS = [OPS[i::6] for i in range(6)]


@pytest.fixture
def kernels() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run(cases: list[entries.Case]) -> list[list[torch.Tensor]]:
    """In few programs."""
    torch.manual_seed(0)
    results = [case() for case in cases]
    torch_pjrt.sync()
    return [[y.detach().cpu() for y in each] for each in results]


@pytest.mark.parametrize("part", range(len(PARTS) + 1))
def test_claimed_by_itself(part: int, kernels: ExitStack) -> None:
    torch.manual_seed(1)
    warnings.simplefilter("ignore")
    of_opinfo = part < len(PARTS)
    names = PARTS[part] if of_opinfo else []
    cases = [case for name in names for case in entries.of_opinfo(name)] if of_opinfo else entries.own()
    torch_pjrt.sync()
    expected = run(cases)
    every = [*_C.composite_names(), *KEPT, *(f"{name}.backward" for name in KEPT)]
    for name in every:
        kernel = Itself(name)
        kernels.enter_context(torch_pjrt.register_kernel(name, function=kernel, when=kernel.when))
    with torch_pjrt.explain() as report:
        claimed = run(cases)
    done = {c.name: c.done_by for graph in report.graphs for c in graph.composites}
    print(sorted(n for n, by in done.items()))
    print({n: by for n, by in done.items() if "decomposition" in by})
    for i, (one, other) in enumerate(zip(claimed, expected, strict=True)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            if not torch.equal(a, b): print(i, (a-b).abs().max())
            torch.testing.assert_close(a, b)
