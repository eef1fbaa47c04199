"""Inference whose parameters are taken into what is compiled (``options={"freeze": True}``).

What is computed of parameters and buffers alone is computed once: casts, a batch norm's factors. A convolution's weight
is multiplied by those of the batch norm after it, and is kept as oneDNN has it (Note [Frozen weights]); what is added
to its result and cuts that off is part of the call.

Each call reads the parameters and compares a digest of their content. No other sign is sure: a batch norm in training,
fused optimizers, ``p.data``, NumPy and other processes write to a parameter without counting a version. What was
computed of one that has changed is computed anew, and the program stays the same.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from torch_pjrt import _C
from torch_pjrt.dynamo.tracing import returns_views

aten = torch.ops.aten
Function = Callable[[list[Any]], Sequence[Any]]
Compiler = Callable[[fx.GraphModule, Sequence[Any], Sequence[str]], Function]


class Window(NamedTuple):
    """How a convolution's weight moves over images."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


class Norm(NamedTuple):
    """A batch norm in evaluation: (x - mean) * factor + bias."""

    weight: fx.Node | None
    bias: fx.Node | None
    mean: fx.Node
    variance: fx.Node
    eps: float


class Weight(NamedTuple):
    """What a convolution's is made of, and where it is put."""

    place: _C.FrozenWeight
    window: Window
    images: list[int]  # their sizes
    weight: fx.Node
    bias: fx.Node | None
    norm: Norm | None  # that comes after

    @property
    def parameters(self) -> list[fx.Node]:
        return [node for node in (self.weight, self.bias, *(self.norm or ())) if isinstance(node, fx.Node)]

    def put(self, values: Iterator[torch.Tensor]) -> None:
        """``values``: first those of the parameters."""
        weight = next(values)
        bias = next(values) if self.bias is not None else None
        norm = [next(values) if isinstance(x, fx.Node) else x for x in self.norm] if self.norm else None
        self.place.put(*folded(weight, bias, norm), **self.window._asdict(), images=self.images)


def static_inputs(graph: fx.Graph, inputs: Sequence[Any]) -> set[int]:
    """Which inputs of the graph that AOTAutograd has compiled now are parameters and buffers that it doesn't write."""
    context = torch._guards.TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    if about is None or len(about.input_info) != len(inputs):
        return set()
    # Where inputs share memory that is written, they come as another, and the numbers are of those before.
    numbers = [getattr(place.meta.get("desc"), "idx", i) for i, place in enumerate(graph.find_nodes(op="placeholder"))]
    if numbers != list(range(len(inputs))):
        return set()
    return {
        i
        for i in about.static_input_indices
        if isinstance(inputs[i], torch.Tensor)
        and inputs[i].device.type == "cpu"
        and inputs[i].layout == torch.strided
        and not about.input_info[i].mutates_data
    }


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def constants_of(graph: fx.Graph, static: set[fx.Node]) -> set[fx.Node]:
    """What is computed of static inputs alone."""
    found = set(static)
    for node in graph.nodes:
        operands = node.all_input_nodes
        if node.op != "call_function" or not operands or not found.issuperset(operands):
            continue
        target = node.target
        is_call = isinstance(target, torch._ops.OpOverload) and target.namespace in ("aten", "prims")
        is_pure = is_call and not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
        if (is_pure and target._schema.returns) or target is operator.getitem:
            found.add(node)
    return found


def is_view(node: fx.Node) -> bool:
    while node.target is operator.getitem:
        node = node.args[0]
    return node.op == "call_function" and returns_views(node.target)


def returned_of(graph: fx.Graph, constants: set[fx.Node]) -> set[fx.Node]:
    """The constants whose memory the caller gets, and may write to: results, and what they are views of."""
    found: set[fx.Node] = set()
    left = list(graph.output_node().all_input_nodes)
    while left:
        node = left.pop()
        if node not in constants or node in found:
            continue
        found.add(node)
        if is_view(node):
            left += node.all_input_nodes
    return found


def norm_after(node: fx.Node, constants: set[fx.Node]) -> tuple[Norm, fx.Node] | None:
    user = only_user(node)
    if user is None or user.target is not aten._native_batch_norm_legit_no_training.default or user.args[0] is not node:
        return None
    arguments: Any = user.args
    _, weight, bias, mean, variance, _, eps = arguments
    result = only_user(user)
    if result is None or result.target is not operator.getitem or result.args[1] != 0:
        return None
    norm = Norm(weight, bias, mean, variance, eps)
    return (norm, result) if all(x is None or x in constants for x in norm[:4]) else None


def added_after(node: fx.Node, constants: set[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """Images that are added, and the sum."""
    user = only_user(node)
    if user is None or user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
        return None
    (other,) = [x for x in user.args if x is not node] or [None]
    if not isinstance(other, fx.Node) or other in constants:
        return None
    value, wanted = other.meta["val"], node.meta["val"]
    return (other, user) if value.shape == wanted.shape and value.dtype == wanted.dtype else None


def activation_after(node: fx.Node) -> tuple[str, fx.Node] | None:
    user = only_user(node)
    if user is None:
        return None
    if user.target is aten.relu.default:
        return "relu", user
    is_relu6 = user.target in (aten.hardtanh.default, aten.clamp.default) and tuple(user.args[1:]) == (0, 6)
    return ("relu6", user) if is_relu6 else None


class Behind(NamedTuple):
    """What is done to a convolution's result, as far as one call does it too."""

    norm: Norm | None
    added: fx.Node | None
    activation: str
    last: fx.Node  # whose result is the call's


def behind(node: fx.Node, constants: set[fx.Node]) -> Behind:
    norm, added, activation, last = None, None, "none", node
    if after := norm_after(last, constants):
        norm, last = after
    if sum_ := added_after(last, constants):
        added, last = sum_
    if cut := activation_after(last):
        activation, last = cut
    return Behind(norm, added, activation, last)


def is_worth_a_call(convolution: fx.Node) -> bool:
    """Does the CPU's library do it right, and save more than a call costs?"""
    arguments: Any = convolution.args
    value, weight, stride = convolution.meta["val"], arguments[1].meta["val"], arguments[3]
    if 0 in value.shape:
        return False
    multiplications = value.numel() // value.shape[1] * weight.numel()
    return _C.is_convolution_worth_a_call(value.dtype, multiplications, stride[-1], value.shape[-1])


def put_call(node: fx.Node, constants: set[fx.Node]) -> Weight | None:
    """In the place of a convolution, and of what is done to its result until another call needs it."""
    if node.target is not aten.convolution.default:
        return None
    arguments: Any = node.args
    images, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    if images in constants or weight not in constants or not (bias is None or bias in constants) or transposed:
        return None
    value = node.meta["val"]
    if value.dim() != 4 or not _C.freezes_convolutions(value.dtype):
        return None
    if not is_worth_a_call(node):
        return None
    window = Window(list(stride), list(padding), list(dilation), groups)
    norm, added, activation, last = behind(node, constants)
    frozen = Weight(_C.FrozenWeight(), window, list(images.meta["val"].shape), weight, bias, norm)
    with node.graph.inserting_before(last):
        call = node.graph.call_function(
            torch.ops.torch_pjrt.frozen_convolution.default,
            (images, added, frozen.place.number, list(value.shape), *window, activation),
        )
    call.meta = dict(last.meta)
    last.replace_all_uses_with(call)
    return frozen


def folded(weight: torch.Tensor, bias: torch.Tensor | None, norm: Sequence[Any] | None) -> tuple[Any, Any]:
    """Weight and bias of the convolution that gives what the batch norm after this one does."""
    if norm is None:
        return weight, bias
    factor, shift, mean, variance, eps = norm
    wide = weight.double()
    scale = (variance.double() + eps).rsqrt()
    if factor is not None:
        scale = scale * factor.double()
    moved = -mean.double() if bias is None else bias.double() - mean.double()
    moved = moved * scale if shift is None else moved * scale + shift.double()
    return (wide * scale.view(-1, 1, 1, 1)).to(weight.dtype), moved.to(weight.dtype)


class Frozen:
    """A graph whose static inputs are taken once."""

    def __init__(
        self,
        module: fx.GraphModule,
        inputs: Sequence[Any],
        names: Sequence[str],
        static: set[int],
        compiler: Compiler,
    ) -> None:
        self._boxed_call = True
        self.plain: Function | None = None
        self.make_plain: Callable[[], Function] = lambda: compiler(module, inputs, names)
        graph = fx.Graph()
        graph.output(graph.graph_copy(module.graph, {}, return_output_node=False))
        places = graph.find_nodes(op="placeholder")
        constants = constants_of(graph, {places[i] for i in static})
        self.weights = [weight for node in list(graph.nodes) if (weight := put_call(node, constants))]
        constants -= returned_of(graph, constants)
        remaining = all_before([node for node in graph.nodes if node.is_impure()])  # by whose results or effects
        # What the rest needs of the constants that isn't a view: that needs what it is a view of.
        needed = [
            node
            for node in graph.nodes
            if node in constants - set(places)
            and isinstance(node.meta["val"], torch.Tensor)
            and not is_view(node)
            and any(user in remaining and (user not in constants or is_view(user)) for user in node.users)
        ]
        wanted = [*needed, *(node for weight in self.weights for node in weight.parameters)]
        before = all_before(wanted)
        self.watched = [i for i in sorted(static) if places[i] in before]
        self.compute: Callable[..., Any] = fx.GraphModule(module, computing(places, self.watched, wanted))
        given = [(node.meta["val"], node.name) for node in needed]
        for node in needed:
            with graph.inserting_before(places[0]):
                place = graph.placeholder(f"{node.name}_frozen")
            place.meta = dict(node.meta)
            node.replace_all_uses_with(place)
        graph.eliminate_dead_code()
        self.constants: list[torch.Tensor] = []
        self.kept = [i for i, place in enumerate(places) if i not in static or place.users]
        for place in places:
            if place in {places[i] for i in self.kept}:
                continue
            graph.erase_node(place)
        rest = [(inputs[i], names[i]) for i in self.kept]
        values, called = zip(*given, *rest, strict=True) if given or rest else ((), ())
        self.function = compiler(fx.GraphModule(module, graph), list(values), list(called))
        self.number_of_constants = len(needed)
        self.seen: bytes | None = None  # the digest of what they were computed of
        self.lock = threading.RLock()

    def take(self, given: Sequence[Any]) -> list[torch.Tensor]:
        """What is computed of the parameters as they are."""
        tensors = [given[i] for i in self.watched]
        seen = _C.digest(tensors)
        if seen != self.seen:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                values = list(self.compute(*tensors))
                parameters = iter(values[self.number_of_constants :])
                for weight in self.weights:
                    weight.put(parameters)
            self.constants, self.seen = values[: self.number_of_constants], seen
        return self.constants

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        given = list(arguments)
        arguments.clear()
        if any(isinstance(given[i], FakeTensor) for i in self.watched):  # which has no values
            if self.plain is None:
                self.plain = self.make_plain()
            return self.plain(given)
        with self.lock:  # until the program has run: it looks weights up by number
            constants = self.take(given)
            return self.function([*constants, *(given[i] for i in self.kept)])


def all_before(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes, and those that they are computed of."""
    found: set[fx.Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += node.all_input_nodes
    return found


def computing(places: Sequence[fx.Node], watched: Sequence[int], wanted: Sequence[fx.Node]) -> fx.Graph:
    """From the watched inputs to what is wanted."""
    graph = fx.Graph()
    made = {places[i]: graph.placeholder(f"input_{i}") for i in watched}
    before = all_before(wanted)
    for node in places[0].graph.nodes:
        if node in before and node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in wanted))
    return graph


def freeze(module: fx.GraphModule, inputs: Sequence[Any], names: Sequence[str], compiler: Compiler) -> Function:
    """The graph for inference that AOTAutograd has compiled now, its parameters frozen where that is possible."""
    static = static_inputs(module.graph, inputs)
    numbers = [n for x in inputs for n in (x.shape if isinstance(x, torch.Tensor) else [x])]
    if not static or not all(isinstance(n, int) for n in numbers):
        return compiler(module, inputs, names)
    return Frozen(module, inputs, names, static, compiler)
