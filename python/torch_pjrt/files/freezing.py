"""``export(freeze=True)``: a model for inference whose weights are constants of the file.

The factors of a batch norm in evaluation are multiplied into the convolution's weight before it. The convolution, the
addition to its result and the activation after it are one composite, ``frozen.convolution``, which a kernel may claim
(``torch_pjrt.kernels.onednn``). The new weights are state that can't be set, because they aren't parameters of the
model.

If that library is registered, products that it claims are composites, too: ``frozen.product``. Their weights are the
model's own, and can't be set either, because the library keeps a copy in its own layout.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from torch_pjrt.composite_ops.composite import composite
from torch_pjrt.dynamo.freezing import Norm, Window, convolution_of, folded, replace
from torch_pjrt.errors import CaptureError
from torch_pjrt.files.naming import Names
from torch_pjrt.files.safetensors import content
from torch_pjrt.kernels import onednn

aten = torch.ops.aten
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "relu6": F.relu6,
}


class Frozen:
    """The weights that the entries of a file have frozen, by the tensors that they were computed from."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.weights: dict[tuple[int, ...], Weight] = {}
        self.matrices: dict[int, Matrix] = {}

    def copy(self) -> Frozen:
        other = Frozen()
        other.names, other.weights, other.matrices = set(self.names), dict(self.weights), dict(self.matrices)
        return other

    def freeze(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], names: Names) -> fx.GraphModule:
        """Returns the model's graph for these arguments, with frozen convolutions.

        Raises:
            TypeError: ``fn`` is not a module.
            ValueError: the module is in training mode.
        """
        if not isinstance(fn, torch.nn.Module):
            raise TypeError(f"freeze=True takes a module or an ExportedProgram, not {type(fn).__name__}")
        in_training = any(module.training and next(module.parameters(), None) is not None for module in fn.modules())
        if in_training and not isinstance(fn, fx.GraphModule):  # the graph of an ExportedProgram includes the mode
            raise ValueError("freeze=True is for inference: call eval() on the module, then export it")
        if (first := next(fn.parameters(), None)) is not None:  # recording reports parameters on other devices
            args, kwargs = pytree.tree_map_only(torch.Tensor, lambda each: each.to(first.device), (args, kwargs))
        try:
            with torch.no_grad():
                program = torch.export.export(fn, args, kwargs, strict=False).run_decompositions({})
        except Exception as error:
            raise CaptureError(
                f"freeze=True: torch.export, which it stands on, can't export this: {str(error).splitlines()[0]} "
                "Export it without freeze"
            ) from error
        module = program.module(check_guards=False)
        assert isinstance(module, fx.GraphModule)
        graph = module.graph
        written = {node.args[0] for node in graph.nodes if node.target is aten.copy_.default}
        constants = set(graph.find_nodes(op="get_attr")) - written
        for node in list(graph.nodes):
            self._freeze_convolution(module, node, constants, names)
            self._freeze_product(module, node, constants, names)
        graph.eliminate_dead_code()
        module.recompile()
        return module

    def _freeze_product(self, module: fx.GraphModule, node: fx.Node, constants: set[fx.Node], names: Names) -> None:
        if not onednn.is_registered() or (found := product_of(node)) is None:
            return
        if found.rows in constants or found.weight not in constants or found.weight.meta["val"].dim() != 2:
            return
        given, weight, result = found.rows.meta["val"], found.weight.meta["val"], node.meta["val"]
        bias = found.bias.meta["val"] if found.bias is not None else None
        if bias is not None and (bias.shape != result.shape[-1:] or bias.dtype != result.dtype):
            return
        if given.dim() < 2 or not given.dtype == weight.dtype == result.dtype:
            return
        if not onednn.is_product_claimed(given.dtype, given.shape[:-1].numel(), weight.shape):
            return
        tensor = operator.attrgetter(str(found.weight.target))(module)
        if id(tensor) in self.matrices:
            self.matrices[id(tensor)].check()
        else:
            name = names.names.get(id(tensor), str(found.weight.target))
            self.matrices[id(tensor)] = Matrix(name, tensor, _digest(tensor))
        called = _product(found.is_transposed, bias is not None, self.matrices[id(tensor)].digest)
        replace(node, called, (found.rows, found.weight) if found.bias is None else found[:3])

    def _freeze_convolution(self, module: fx.GraphModule, node: fx.Node, constants: set[fx.Node], names: Names) -> None:
        if (found := convolution_of(node, constants)) is None:
            return
        images, weight, bias, window, norm, added, activation, last = found
        new_weight, new_bias, digest = self._folded(module, weight, bias, norm, names)
        operands: list[Any] = [images, _put(module, last, new_weight)]
        operands += [] if new_bias is None else [_put(module, last, new_bias)]
        operands += [] if added is None else [added]
        replace(last, _convolution(window, activation, new_bias is not None, added is not None, digest), (*operands,))

    def _folded(
        self, module: fx.GraphModule, weight: fx.Node, bias: fx.Node | None, norm: Norm | None, names: Names
    ) -> tuple[torch.Tensor, torch.Tensor | None, str]:
        def value(node: Any) -> Any:
            return operator.attrgetter(node.target)(module) if isinstance(node, fx.Node) else node

        parts = [value(weight), value(bias), *map(value, norm or ())]
        key = tuple(id(part) if isinstance(part, torch.Tensor) else hash(part) for part in parts)
        if key in self.weights:
            self.weights[key].check()
        else:
            made, shift = (None if new is None else new.to(parts[0].device) for new in _new_weights(parts))
            assert made is not None
            name = names.names.get(id(parts[0]), str(weight.target))
            self.names.add(names.add(made, f"frozen.{name}"))
            if shift is not None:
                self.names.add(names.add(shift, f"frozen.{name.removesuffix('weight')}bias"))
            self.weights[key] = Weight(name, parts, made, shift, _digest(made))
        frozen = self.weights[key]
        return frozen.made, frozen.shift, frozen.digest

    def parts(self, names: Names) -> set[str]:
        """Returns the names of the tensors that the frozen weights were computed from."""
        parts = [part for weight in self.weights.values() for part in weight.parts]
        parts += [matrix.tensor for matrix in self.matrices.values()]
        return {names.names[id(part)] for part in parts if id(part) in names.names}

    def check(self) -> None:
        """Raises ValueError if a tensor has changed since its weight was frozen."""
        for weight in self.weights.values():
            weight.check()
        for matrix in self.matrices.values():
            matrix.check()


@dataclass
class Weight:
    name: str
    parts: list[Any]  # the weight, the bias and a batch norm's; all but the first may be a number or None
    made: torch.Tensor
    shift: torch.Tensor | None
    digest: str

    def check(self) -> None:
        for frozen, now in zip((self.made, self.shift), _new_weights(self.parts), strict=True):
            if frozen is not None and now is not None and content(frozen) != content(now):
                raise ValueError(f"'{self.name}' or a norm after it has changed since it was frozen: export anew")


@dataclass
class Matrix:
    """The weight of a product."""

    name: str
    tensor: torch.Tensor
    digest: str

    def check(self) -> None:
        if _digest(self.tensor) != self.digest:
            raise ValueError(f"'{self.name}' has changed since it was frozen: export anew")


class Product(NamedTuple):
    """A product of rows and a matrix, which may be transposed."""

    rows: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    is_transposed: bool


def product_of(node: fx.Node) -> Product | None:
    arguments: Any = node.args
    if node.target is aten.linear.default:
        rows, weight, *bias = arguments
        return Product(rows, weight, bias[0] if bias else None, is_transposed=True)
    if node.target is aten.addmm.default and not node.kwargs:
        bias, rows, weight = arguments
        return Product(rows, weight, bias, is_transposed=False)
    if node.target in (aten.mm.default, aten.matmul.default):
        rows, weight = arguments
        return Product(rows, weight, None, is_transposed=False)
    return None


def _digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(content(tensor)).hexdigest()


def _new_weights(parts: list[Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns the folded weight and bias on the CPU, in new memory."""
    with torch.no_grad():
        on_cpu = [part.detach().cpu() if isinstance(part, torch.Tensor) else part for part in parts]
        made, shift = folded(on_cpu[0], on_cpu[1], on_cpu[2:] or None)
        return made.clone(memory_format=torch.contiguous_format), None if shift is None else shift.clone()


def _put(module: fx.GraphModule, before: fx.Node, tensor: torch.Tensor) -> fx.Node:
    name = next((name for name, other in module.named_buffers() if other is tensor), None)
    if name is None:
        name = f"frozen_{len(module._buffers)}"
        module.register_buffer(name, tensor)
    with module.graph.inserting_before(before):
        return module.graph.get_attr(name)


def _convolution(
    window: Window, activation: str, has_bias: bool, has_added: bool, digest: str
) -> Callable[..., torch.Tensor]:
    @composite(onednn.CONVOLUTION, **window._asdict(), activation=activation, has_bias=has_bias, weight=digest)
    def frozen_convolution(images: torch.Tensor, weight: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        result = F.conv2d(images, weight, rest[0] if has_bias else None, *window)
        if has_added:
            result = result + rest[-1]
        return ACTIVATIONS[activation](result)

    return frozen_convolution


def _product(is_transposed: bool, has_bias: bool, digest: str) -> Callable[..., torch.Tensor]:
    @composite(onednn.PRODUCT, turned=is_transposed, has_bias=has_bias, weight=digest)
    def frozen_product(rows: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
        if is_transposed:
            return F.linear(rows, weight, *bias)
        return torch.addmm(*bias, rows, weight) if has_bias else rows @ weight

    return frozen_product
