"""Composites of a compiled function: the setting while it is compiled, and the groups in a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._dynamo import trace_rules

from torch_pjrt import _C
from torch_pjrt.composite_ops.higher_order import attributes_from
from torch_pjrt.composite_ops.known import known
from torch_pjrt.program.loops import Call, without_numbers


def leave_to_tracing(function: Callable[..., Any]) -> None:
    """Makes Dynamo put calls of the function into its graph, untraced; AOTAutograd traces them."""
    trace_rules._allowed_callable_ids.add(id(function))
    trace_rules._nonstrict_trace_callable_ids.add(id(function))


def install() -> None:
    known.listen(leave_to_tracing)


@contextmanager
def asking(composites: Any) -> Iterator[None]:
    before = _C.composites_switch()
    _C.set_composites_switch(composites)
    try:
        yield
    finally:
        _C.set_composites_switch(before)


def pjrt_composite(call: Call, graph: Any, *operands: Any, name: str, attributes: str) -> list[Any]:
    """Records the group as one node."""
    called, tensors = without_numbers(call, operands)
    group = _C.Group(tensors)
    try:
        results: Sequence[Any] = called(graph, *group.placeholders)
        if group.written():
            raise NotImplementedError(f"composite '{name}' writes to a tensor from outside")
        recorded: list[Any] = group.record(name, attributes_from(attributes), results)
    finally:
        group.end()
    return recorded


LOWERINGS: dict[str, Callable[..., Any]] = {"pjrt_composite": pjrt_composite}
