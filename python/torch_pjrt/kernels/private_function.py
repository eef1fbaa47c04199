"""Builds a private function of StableHLO, line by line, for kernels in text form."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from torch_pjrt.kernels.call import ELEMENTS, Form

Dims = Sequence[int]


class Value(NamedTuple):
    name: str
    element: str  # "bf16"
    dims: tuple[int, ...]

    @property
    def type(self) -> str:
        return tensor(self.element, self.dims)


def tensor(element: str, dims: Dims) -> str:
    """Returns an MLIR type: ``"tensor<2x3xf32>"``."""
    return f"tensor<{'x'.join([*map(str, dims), element])}>"


def layout(fastest_first: Dims) -> str:
    return f"dense<{list(fastest_first) or ''}> : tensor<{len(fastest_first)}xindex>"


def row_major(dims: Dims) -> tuple[int, ...]:
    return tuple(reversed(range(len(dims))))


def quoted(text: str) -> str:
    """Returns a string literal in MLIR's syntax."""
    return '"' + text.replace("\\", "\\5C").replace('"', "\\22") + '"'


class PrivateFunction:
    """A function of ``operands``; its methods add ops, whose result types follow from their operands."""

    def __init__(self, operands: Sequence[Form]) -> None:
        self.operands = [Value(f"%arg{i}", ELEMENTS[form.dtype], form.shape) for i, form in enumerate(operands)]
        self.lines: list[str] = []

    def op(self, text: str, element: str, dims: Dims) -> Value:
        value = Value(f"%{len(self.lines)}", element, tuple(dims))
        self.lines.append(f"{value.name} = {text}")
        return value

    def constant(self, number: float, element: str, dims: Dims = ()) -> Value:
        text = {math.inf: "0x7F800000", -math.inf: "0xFF800000"}.get(number, f"{number:.9e}")
        if math.isinf(number):
            assert element == "f32"
        return self.op(f"stablehlo.constant dense<{text}> : {tensor(element, dims)}", element, dims)

    def zeros(self, form: Form) -> Value:
        element = ELEMENTS[form.dtype]
        zero = "false" if element == "i1" else "0.0" if form.dtype.is_floating_point else "0"
        text = f"dense<{zero}>" if 0 not in form.shape else "dense<>"
        return self.op(f"stablehlo.constant {text} : {form.mlir}", element, form.shape)

    def reshape(self, x: Value, dims: Dims) -> Value:
        if x.dims == tuple(dims):
            return x
        return self.op(f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(x.element, dims)}", x.element, dims)

    def transpose(self, x: Value, order: Dims) -> Value:
        dims = tuple(x.dims[i] for i in order)
        text = f"stablehlo.transpose {x.name}, dims = {list(order)} : ({x.type}) -> {tensor(x.element, dims)}"
        return self.op(text, x.element, dims)

    def broadcast(self, x: Value, dims: Dims, onto: Dims) -> Value:
        """Broadcasts; ``onto`` has the dimension of the result for each of x's."""
        if x.dims == tuple(dims):
            return x
        text = f"stablehlo.broadcast_in_dim {x.name}, dims = {list(onto)} : ({x.type}) -> {tensor(x.element, dims)}"
        return self.op(text, x.element, dims)

    def convert(self, x: Value, element: str) -> Value:
        if x.element == element:
            return x
        return self.op(f"stablehlo.convert {x.name} : ({x.type}) -> {tensor(element, x.dims)}", element, x.dims)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        return self.op(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.element, x.dims)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        types = f"({x.type}, {y.type}) -> {tensor('i1', x.dims)}"
        return self.op(f"stablehlo.compare {direction}, {x.name}, {y.name} : {types}", "i1", x.dims)

    def select(self, where: Value, x: Value, y: Value) -> Value:
        types = f"{where.type}, {x.type}"
        return self.op(f"stablehlo.select {where.name}, {x.name}, {y.name} : {types}", x.element, x.dims)

    def greatest_of_rows(self, x: Value) -> Value:
        """Returns the maximum over the last dimension, for float32."""
        least = self.constant(-math.inf, "f32")
        last, dims = len(x.dims) - 1, x.dims[:-1]
        types = f"({x.type}, {least.type}) -> {tensor('f32', dims)}"
        text = f"stablehlo.reduce({x.name} init: {least.name}) applies stablehlo.maximum across dimensions = [{last}]"
        return self.op(f"{text} : {types}", "f32", dims)

    def first_of_rows(self, x: Value, count: int) -> Value:
        """Returns the first ``count`` elements of the last dimension."""
        if x.dims[-1] == count:
            return x
        dims = (*x.dims[:-1], count)
        window = ", ".join(f"0:{size}" for size in dims)
        types = f"({x.type}) -> {tensor(x.element, dims)}"
        return self.op(f"stablehlo.slice {x.name} [{window}] : {types}", x.element, dims)

    def longer_rows(self, x: Value, count: int) -> Value:
        """Pads the last dimension with zeros to ``count`` elements."""
        if x.dims[-1] == count:
            return x
        dims, zero = (*x.dims[:-1], count), self.constant(0, x.element)
        none = [0] * len(dims)
        high = [*none[:-1], count - x.dims[-1]]
        text = f"stablehlo.pad {x.name}, {zero.name}, low = {none}, high = {high}, interior = {none}"
        return self.op(f"{text} : ({x.type}, {zero.type}) -> {tensor(x.element, dims)}", x.element, dims)

    def custom_call(
        self, target: str, operands: Sequence[Value], results: Sequence[tuple[str, Dims, Dims]], config: str
    ) -> list[Value]:
        """Calls XLA's custom call of that name on row-major operands. ``results`` has for each result the element, the
        dimensions, and their order from the fastest-varying to the slowest."""
        layouts = ", ".join(layout(row_major(x.dims)) for x in operands)
        of_results = ", ".join(layout(order) for _, _, order in results)
        types = ", ".join(tensor(element, dims) for element, dims, _ in results)
        name = f"%{len(self.lines)}"
        self.lines.append(
            f"{name}:{len(results)} = stablehlo.custom_call @{quoted(target)}({', '.join(x.name for x in operands)}) "
            f"{{api_version = 2 : i32, backend_config = {quoted(config)}, operand_layouts = [{layouts}], "
            f"result_layouts = [{of_results}]}} : ({', '.join(x.type for x in operands)}) -> ({types})"
        )
        return [Value(f"{name}#{i}", element, tuple(dims)) for i, (element, dims, _) in enumerate(results)]

    def text(self, results: Sequence[Value]) -> tuple[str, str]:
        """Returns the function's name, which has a hash of its text, and the text."""
        taken = ", ".join(f"{x.name}: {x.type}" for x in self.operands)
        types = ", ".join(x.type for x in results)
        lines = "".join(f"    {line}\n" for line in self.lines)
        body = f"({taken}) -> ({types}) {{\n{lines}    return {', '.join(x.name for x in results)} : {types}\n  }}\n"
        name = f"kernel.{hashlib.sha256(body.encode()).hexdigest()[:16]}"
        return name, f"  func.func private @{quoted(name)}{body}"
