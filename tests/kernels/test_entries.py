"""A kernel that is the op itself claims every composite: it runs, and the values are unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.kernels import entries
from tests.ops.opinfo import assert_same, tensors as leaves
from torch_pjrt import _C
from torch_pjrt.composite_ops.names import KEPT
from torch_pjrt.kernels.call import Call

pytestmark = pytest.mark.compiled

SUFFIX = ".backward"
NUMBERS = {"momentum": 0.1}  # inputs of the program, with the samples' values


class Itself:
    """A kernel that is the op itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        namespace, op, overload = name.removesuffix(SUFFIX).split(".")
        self.op = getattr(getattr(getattr(torch.ops, namespace), op), overload)
        self.call: Call | None = None

    def when(self, call: Call) -> bool | str:
        self.call = call
        return "random_key" not in call.attributes.get("operands", ()) or "it draws"

    def values(self, tensors: list[torch.Tensor], named: dict[str, Any]) -> dict[str, Any]:
        """Returns the op's arguments."""
        assert self.call is not None
        declared = self.op._schema.arguments
        names = self.call.attributes.get("operands") or [a.name for a in declared if "Tensor" in str(a.type)]
        values: dict[str, Any] = {a.name: [] if str(a.type) == "List[Tensor]" else a.default_value for a in declared}
        for a in declared:
            if a.name in self.call.attributes and a.name != "memory_format":
                value = self.call.attributes[a.name]
                is_dtype = isinstance(value, str) and "str" not in str(a.type)
                values[a.name] = getattr(torch, value) if is_dtype else value
        rest, types = iter(tensors), {a.name: str(a.type) for a in declared}
        for name in names:
            tensor = named[name] if isinstance(named.get(name), torch.Tensor) else next(rest, None)
            if tensor is None:
                break
            base, _, index = name.partition(".")
            if base in NUMBERS and "Tensor" not in types[base]:
                values[base] = NUMBERS[base]
            elif index:
                values[base] = [*(values[base] or []), None][: int(index)]
                values[base] += [None] * (int(index) - len(values[base])) + [tensor]
            else:
                values[base] = tensor
        return values

    def __call__(self, /, *tensors: torch.Tensor, **named: Any) -> Any:
        if not self.name.endswith(SUFFIX):
            return self.results(list(tensors), named)
        assert self.call is not None
        wanted = self.call.attributes["gradients_of"]
        names = self.call.attributes.get("operands", ())
        count = len(tensors) - max(1, sum(name.startswith("gradient.") for name in names))
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors[:count])]
            pairs = [(y, g) for y, g in zip(self.results(inputs, {}), tensors[count:], strict=True) if y.requires_grad]
            return torch.autograd.grad([y for y, _ in pairs], [inputs[i] for i in wanted], [g for _, g in pairs])

    def results(self, tensors: list[torch.Tensor], named: dict[str, Any]) -> list[torch.Tensor]:
        values = self.values(tensors, named)
        declared = self.op._schema.arguments
        written = [a.name for a in declared if a.alias_info is not None and a.alias_info.is_write]
        if self.name.removesuffix(SUFFIX) in (
            "aten.native_batch_norm.default",
            "aten.instance_norm.default",
        ):  # their schemas don't say so
            written = [name for name in ("running_mean", "running_var") if values[name] is not None]
        for name in written:
            given = values[name]
            values[name] = given.clone() if isinstance(given, torch.Tensor) else [t.clone() for t in given]
        order = [values[a.name] for a in declared if not a.kwarg_only]
        made = self.op(*order, **{a.name: values[a.name] for a in declared if a.kwarg_only})
        return leaves([made, *(values[name] for name in written)])


OPS = [name for name in entries.SAMPLES if name in entries.OPS]
OF_OPINFO = [OPS[i::5] for i in range(5)]
EVERY = [*_C.composite_names(), *KEPT, *(f"{name}.backward" for name in KEPT)]


@pytest.fixture
def kernels() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run(cases: list[entries.Case]) -> list[list[torch.Tensor]]:
    """Runs all cases in one program."""
    torch.manual_seed(0)
    results = [case() for case in cases]
    every = [y.detach() for each in results for y in each if y.numel()]
    together = torch.cat([y.reshape(-1)[:1].float() for y in every])
    torch_pjrt.sync()
    assert together.numel() == len(every)
    return [[y.detach().cpu() for y in each] for each in results]


def claimed(cases: list[entries.Case], expected: set[str], kernels: ExitStack) -> list[list[torch.Tensor]]:
    for name in EVERY:
        kernel = Itself(name)
        kernels.enter_context(torch_pjrt.register_kernel(name, function=kernel, when=kernel.when))
    with torch_pjrt.explain() as report:
        results = run(cases)
    done = {one.name for graph in report.graphs for one in graph.composites if one.done_by == "Itself"}
    missed = [one for graph in report.graphs for one in graph.composites if one.name in expected - done]
    assert expected - done == set(), missed
    return results


@pytest.mark.parametrize("part", range(len(OF_OPINFO)))
@pytest.mark.sampled(2)
def test_opinfos_samples(part: int, kernels: ExitStack) -> None:
    """Results equal the CPU's; tests/ops/test_opinfo.py compares them without kernels."""
    names = OF_OPINFO[part]
    on_cpu = [case for name in names for case in entries.of_opinfo(name, "cpu")]
    results = claimed(
        [case for name in names for case in entries.of_opinfo(name, "pjrt")],
        {full for name in names for full in entries.full(entries.SAMPLES[name])},
        kernels,
    )
    for ours, case in zip(results, on_cpu, strict=True):
        assert_same(ours, case())


def test_others(kernels: ExitStack) -> None:
    cases: dict[str, list[entries.Case]] = {}
    for device in ("pjrt", "cpu"):
        torch.manual_seed(1)
        for names, case in entries.own(device):
            cases.setdefault(names, []).append(case)
    expected = {full for names in cases for full in entries.full(names)}
    results = claimed([ours for ours, _ in cases.values()], expected, kernels)
    for ours, (names, (_, on_cpu)) in zip(results, cases.items(), strict=True):
        if not entries.full(names) & entries.full(entries.NOT_ON_THE_CPU):
            assert_same(ours, on_cpu())


def test_every_entry_is_among_them() -> None:
    has = {
        name
        for names in (*entries.SAMPLES.values(), *(names for names, _ in entries.own()))
        for name in entries.full(names)
    }
    left = {*_C.composite_names(), *KEPT} - has
    assert left == {name for name in entries.full(entries.NOT_CLAIMED) if name in left}
