"""Inference with parameters that are constants of the compiled graph (``options={"freeze": True}``).

Values computed from parameters and buffers only are computed once: casts, the factors of a batch norm. A convolution's
weight is multiplied by the factors of the batch norm after it and stored in oneDNN's layout (Note [Frozen weights]);
an addition to its result and an activation after it become part of the call.

Each call reads the parameters and compares a digest of their content. No cheaper check is safe: a batch norm in
training, fused optimizers, ``p.data``, NumPy and other processes write to a parameter without a new version. If a
parameter has changed, the values that depend on it are computed again, and the program stays the same.
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
    """The window of a convolution."""

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
    """A convolution's weight: the parameters that it is computed from, and the place where it is stored."""

    place: _C.FrozenWeight
    window: Window
    images: list[int]  # their shape
    weight: fx.Node
    bias: fx.Node | None
    norm: Norm | None  # the batch norm after the convolution

    @property
    def parameters(self) -> list[fx.Node]:
        return [node for node in (self.weight, self.bias, *(self.norm or ())) if isinstance(node, fx.Node)]

    def put(self, values: Iterator[torch.Tensor]) -> None:
        """Stores the weight; ``values`` begins with the parameters' values."""
        weight = next(values)
        bias = next(values) if self.bias is not None else None
        norm = [next(values) if isinstance(x, fx.Node) else x for x in self.norm] if self.norm else None
        self.place.put(*folded(weight, bias, norm), **self.window._asdict(), images=self.images)


def static_inputs(graph: fx.Graph, inputs: Sequence[Any]) -> set[int]:
    """Returns the indices of inputs that are parameters and buffers which AOTAutograd's current graph doesn't write."""
    context = torch._guards.TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    if about is None or len(about.input_info) != len(inputs):
        return set()
    # If inputs share memory that is written, AOTAutograd merges them, and its indices are those before the merge.
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
    """Returns the nodes that are computed from static inputs only."""
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
    """Returns the constants whose memory the caller gets and may write to: results, and tensors that they view."""
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
    """Returns the images that are added to the node's result, and the sum."""
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


class Convolution(NamedTuple):
    """A convolution with a constant weight, and the operations on its result that are fused into its call."""

    images: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    window: Window
    norm: Norm | None
    added: fx.Node | None
    activation: str
    last: fx.Node  # the node whose result is the call's


def replace(node: fx.Node, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Puts a call in the place of a node."""
    with node.graph.inserting_before(node):
        call = node.graph.call_function(target, arguments)
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Returns the arguments of a call by name, with defaults."""
    target: Any = node.target
    given = {each.name: each.default_value for each in target._schema.arguments}
    return {**given, **dict(zip(given, node.args, strict=False)), **node.kwargs}


def convolution_of(node: fx.Node, constants: set[fx.Node]) -> Convolution | None:
    """Returns the two-dimensional convolution of a batch with a constant weight; None for another node."""
    if node.target not in (aten.convolution.default, aten.conv2d.default) or node.meta["val"].dim() != 4:
        return None
    given = arguments_of(node)
    images, weight, bias = given["input"], given["weight"], given["bias"]
    if images in constants or weight not in constants or not (bias is None or bias in constants):
        return None
    if given.get("transposed"):
        return None
    lists = (list(given[name]) for name in Window._fields[:3])
    stride, padding, dilation = (each * 2 if len(each) == 1 else each for each in lists)
    window = Window(stride, padding, dilation, given["groups"])
    norm, added, activation, last = None, None, "none", node
    if after := norm_after(last, constants):
        norm, last = after
    if sum_ := added_after(last, constants):
        added, last = sum_
    if cut := activation_after(last):
        activation, last = cut
    return Convolution(images, weight, bias, window, norm, added, activation, last)


def is_claimed(op: str, convolution: fx.Node) -> bool:
    """Whether oneDNN computes the convolution (Note [Claims])."""
    arguments: Any = convolution.args
    value, weight, stride = convolution.meta["val"], arguments[1].meta["val"], arguments[3]
    work = value.numel() // max(1, value.shape[1]) * weight.numel()
    return _C.calls_libraries() and _C.is_claimed(op, value.dtype, work, stride=stride[-1], size=value.shape[-1])


def put_call(node: fx.Node, constants: set[fx.Node]) -> Weight | None:
    """Replaces a convolution, and the fused operations on its result, by a call; returns its weight, or None."""
    found = convolution_of(node, constants)
    if found is None or not torch.backends.mkldnn.is_available() or not is_claimed("frozen_convolution", node):
        return None
    images, weight, bias, window, norm, added, activation, last = found
    frozen = Weight(_C.FrozenWeight(), window, list(images.meta["val"].shape), weight, bias, norm)
    arguments = images, added, frozen.place.number, list(node.meta["val"].shape), *window, activation
    replace(last, torch.ops.torch_pjrt.frozen_convolution.default, arguments)
    return frozen


def folded(weight: torch.Tensor, bias: torch.Tensor | None, norm: Sequence[Any] | None) -> tuple[Any, Any]:
    """Returns weight and bias of a convolution that includes the batch norm after it."""
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
    """A graph whose static inputs are constants."""

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
        remaining = all_before([node for node in graph.nodes if node.is_impure()])  # nodes with an effect or a result
        # Constants that the rest of the graph uses. It uses a view's base instead of the view.
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
        self.seen: bytes | None = None  # the digest of the parameters that the constants were computed from
        self.lock = threading.RLock()

    def take(self, given: Sequence[Any]) -> list[torch.Tensor]:
        """Returns the constants, computed again if the parameters have changed."""
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
        if any(isinstance(given[i], FakeTensor) for i in self.watched):  # it has no values to digest
            if self.plain is None:
                self.plain = self.make_plain()
            return self.plain(given)
        with self.lock:  # until the program has run, because it looks weights up by index
            constants = self.take(given)
            return self.function([*constants, *(given[i] for i in self.kept)])


def all_before(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Returns the nodes and all nodes that they depend on."""
    found: set[fx.Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += node.all_input_nodes
    return found


def computing(places: Sequence[fx.Node], watched: Sequence[int], wanted: Sequence[fx.Node]) -> fx.Graph:
    """Returns a graph from the watched inputs to the wanted nodes."""
    graph = fx.Graph()
    made = {places[i]: graph.placeholder(f"input_{i}") for i in watched}
    before = all_before(wanted)
    for node in places[0].graph.nodes:
        if node in before and node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in wanted))
    return graph


def freeze(module: fx.GraphModule, inputs: Sequence[Any], names: Sequence[str], compiler: Compiler) -> Function:
    """Compiles AOTAutograd's inference graph, with frozen parameters if that is possible."""
    static = static_inputs(module.graph, inputs)
    numbers = [n for x in inputs for n in (x.shape if isinstance(x, torch.Tensor) else [x])]
    if not static or not all(isinstance(n, int) for n in numbers):
        return compiler(module, inputs, names)
    return Frozen(module, inputs, names, static, compiler)
