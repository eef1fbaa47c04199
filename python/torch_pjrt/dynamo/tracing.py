"""Compiles an FX graph of ATen calls: it runs once on placeholders, through the recorder of every call on the
device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.dynamo import composites, control_flow, flex_attention
from torch_pjrt.dynamo.recompiles import Sizes
from torch_pjrt.dynamo.symbols import Symbols, size_now
from torch_pjrt.program.assertions import taken
from torch_pjrt.program.effects import has_effects, is_custom
from torch_pjrt.program.placeholders import (
    DEVICE,
    has_memory_of,
    make_placeholder,
    naming_device,
    on_device,
    reaches,
    reaches_beside,
    same_strides,
)
from torch_pjrt.program.shown import show
from torch_pjrt.program.stack import LIBRARIES, frame_of_user, user_frame
from torch_pjrt.program.tracing_scope import tracing

HIGHER_ORDER = control_flow.LOWERINGS | flex_attention.LOWERINGS | composites.LOWERINGS


class Unknown:
    """A value that only a run can determine: of an op that isn't compiled, with a size that depends on data."""


UNKNOWN = Unknown()


class Refused(RuntimeError):
    """Raised if some calls of a graph can't be part of a program."""

    def __init__(self, reasons: dict[fx.Node, str]) -> None:
        super().__init__("; ".join(f"{operator_of(node)}: {reason}" for node, reason in reasons.items()))
        self.reasons = reasons


def operator_of(node: fx.Node) -> Any:
    """Returns the operator that a node calls. AOTAutograd wraps foreign operators that change their arguments in an
    operator whose first argument they are."""
    is_around = getattr(node.target, "__name__", "").startswith("auto_functionalized")
    return node.args[0] if is_around else node.target


def user_line(node: fx.Node) -> tuple[str, int]:
    """Returns the file and line of the user's code that a call comes from, or ("", 0) if Dynamo recorded none.

    For a function of PyTorch's, such as an optimizer's step, Dynamo records only PyTorch's lines; then it is the user's
    line that runs now."""
    frame = frame_of_user(node.meta.get("stack_trace"))
    if frame and frame.file.startswith(LIBRARIES) and (running := user_frame()):
        return running.f_code.co_filename, running.f_lineno
    return (frame.file, frame.line) if frame else ("", 0)


def returns_views(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is None or any(result.alias_info is not None for result in schema.returns)


def makes_from_nothing(target: Any, kwargs: dict[str, Any]) -> bool:
    """Whether it is a factory without a device. Dynamo's graphs name the device, the user's torch.ops.aten may not."""
    if not isinstance(target, torch._ops.OpOverload) or kwargs.get("device") is not None:
        return False
    arguments = target._schema.arguments
    return any(a.name == "device" for a in arguments) and not any("Tensor" in str(a.type) for a in arguments)


def is_sparse(node: fx.Node) -> bool:
    """Whether a tensor of its results is sparse, as an embedding's gradient may be."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(value, torch.Tensor) and value.layout is not torch.strided for value in values)


def rebinds(target: Any) -> bool:
    """Whether the call replaces its first argument's memory, to which a program can only write."""
    name = target.name() if isinstance(target, torch._ops.OpOverload) else ""
    return name.startswith(("aten::set_", "aten::resize_", "inductor::resize_storage_bytes_"))


def up_to_memory(node: fx.Node) -> list[fx.Node]:
    """Returns a tensor's node, the nodes that it is a view of, and last the argument or result that owns the memory."""
    nodes = [node]
    while node.op == "call_function" and returns_views(node.target) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        nodes.append(node)
    return nodes


def laid_out(result: Any, captured: Any, symbols: Symbols) -> Any:
    """Returns a call's results with the strides of the capture, on which later views depend.

    Kernels of different devices may return different strides, as the CPU's convolutions do.
    """
    if isinstance(result, (tuple, list)) and isinstance(captured, (tuple, list)):
        return type(result)(laid_out(*pair, symbols) for pair in zip(result, captured, strict=True))
    if not isinstance(result, torch.Tensor) or not isinstance(captured, torch.Tensor) or result.numel() == 0:
        return result
    try:
        sizes, strides = symbols.layout(captured)
    except ValueError:  # the strides depend on data
        return result
    if list(result.shape) != sizes or same_strides(sizes, result.stride(), strides):
        return result
    return torch.empty_strided(sizes, strides, dtype=result.dtype, device=DEVICE).copy_(result)


def is_only_read_copy(node: fx.Node) -> bool:
    """Whether it is a copy that a write to a view became, of which only elements are read.

    With the view's strides, which have gaps between elements, the write would not be done in place."""
    if node.target is not torch.ops.aten.copy.default:
        return False
    return all(
        isinstance(user.target, torch._ops.OpOverload)
        and not user.target._schema.is_mutable
        and not returns_views(user.target)
        and not reaches(user.target)
        for user in node.users
    )


def random_device(node: fx.Node) -> torch.device | None:
    """Returns the device from whose generator the call draws, or None if it doesn't draw."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return None
    results = pytree.tree_leaves(node.meta.get("val"))
    return next((result.device for result in results if isinstance(result, torch.Tensor)), None)


def device_drawn_on(module: fx.GraphModule) -> torch.device:
    """Returns the device from whose generator a program of the graph draws: the device on which the graph, and the
    graphs in it, draw. If these are the CPU and another device, it is the other one."""
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, fx.GraphModule)]
    devices = {device for graph in graphs for node in graph.nodes if (device := random_device(node))}
    others = {device for device in devices if device.type != "cpu"}
    return next(iter(others or devices), DEVICE)


class Placeholders(fx.Interpreter):
    """Runs a graph on placeholders, and notes the reasons of calls that the recorder refuses."""

    def __init__(
        self,
        module: fx.GraphModule,
        constants: dict[str, torch.Tensor],
        random_device: torch.device,
        symbols: Symbols,
    ) -> None:
        super().__init__(module)
        self.constants = constants
        self.symbols = symbols
        self.refused: dict[fx.Node, str] = {}
        self.random_device = random_device

    def run_node(self, n: fx.Node) -> Any:
        if n.op in ("placeholder", "output"):
            return super().run_node(n)
        if n.op == "get_attr":
            return self.constant(n)
        if any(map(is_sparse, (n, *n.all_input_nodes))):
            return self.refuse(n, "a tensor that it takes or gives is sparse")
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if any(leaf is UNKNOWN for leaf in pytree.tree_leaves((args, kwargs))):
            return UNKNOWN
        if n.op != "call_function":
            return self.refuse(n, f"a graph with {n.op} nodes is not made of ATen calls")
        if rebinds(n.target):
            return self.refuse(n, "it gives a tensor other memory")
        if has_effects(called := operator_of(n)):
            kind = "a custom op" if is_custom(called) else "an op with effects"
            return self.refuse(n, f"it is {kind}, whose code runs in each call")
        if (device := random_device(n)) and device.type != self.random_device.type:
            return self.refuse(
                n, f"it draws from the generator of '{device}', and others draw from that of '{self.random_device}'"
            )
        if reaches(n.target):
            *views, root = up_to_memory(n.args[0])
            if root in self.refused or not has_memory_of(args[0], n.args[0].meta["val"], self.symbols.value):
                reason = reaches_beside("it", "its tensor")
                self.refused |= dict.fromkeys(views, reason)
                return self.refuse(n, reason)
        args, kwargs = naming_device((args, kwargs))
        if makes_from_nothing(n.target, kwargs):
            kwargs = {**kwargs, "device": DEVICE}
        _C.set_location(*user_line(n))
        try:
            if isinstance(n.target, torch._ops.HigherOrderOperator):
                return self.higher_order(n.target, args, kwargs)
            if is_only_read_copy(n):
                return on_device(args[1].to(args[0].dtype).expand(args[0].shape))
            result = n.target(*args, **kwargs)
            return result if returns_views(n.target) else laid_out(on_device(result), n.meta.get("val"), self.symbols)
        except Exception as error:  # any error: the op runs uncompiled, and raises there if it must
            return self.refuse(n, str(error).split("\n")[0])

    def higher_order(self, operator: Any, args: Any, kwargs: Any) -> Any:
        lowering = HIGHER_ORDER.get(operator.name())
        if lowering is None:
            raise NotImplementedError("a higher order operator without a lowering")

        def call(graph: fx.GraphModule, *operands: Any) -> Sequence[Any]:
            inner = Placeholders(graph, {}, self.random_device, self.symbols)
            results = inner.run(*operands)
            if inner.refused:
                raise NotImplementedError(str(Refused(inner.refused)))
            return results if isinstance(results, (tuple, list)) else [results]

        return lowering(call, *args, **kwargs)

    def constant(self, n: fx.Node) -> Any:
        name = str(n.target)
        if name not in self.constants:
            self.constants[name] = on_device(self.fetch_attr(name))
        return self.constants[name]

    def refuse(self, n: fx.Node, reason: str) -> Any:
        self.refused[n] = reason
        scratch = _C.Trace()

        def stand_in(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                return make_placeholder(scratch, value, self.symbols.layout(value), torch.device("cpu"))
            return value if isinstance(value, (int, float, bool)) or value is None else UNKNOWN

        try:
            return pytree.tree_map(stand_in, n.meta["val"])
        except (KeyError, ValueError):
            return UNKNOWN


@contextmanager
def tracing_calls() -> Iterator[None]:
    """Records calls without autograd, with the user's lines of their nodes."""
    with tracing(), torch.no_grad():
        try:
            yield
        finally:
            _C.set_location("", 0)


def result_devices(module: fx.GraphModule, results: Sequence[Any]) -> list[torch.device]:
    """Returns the devices of the tensors among the graph's results."""
    (output,) = module.graph.find_nodes(op="output")
    values = [node.meta["val"] if isinstance(node, fx.Node) else node for node in pytree.tree_leaves(output.args[0])]
    return [
        value.device if isinstance(value, torch.Tensor) else torch.device("cpu")
        for value, result in zip(values, results, strict=True)
        if isinstance(result, torch.Tensor)
    ]


class Tracer:
    """Makes programs of one graph, for arguments of different sizes."""

    def __init__(self, module: fx.GraphModule, names: Sequence[str]) -> None:
        """``names`` are the user's names of the arguments."""
        self.module = module
        self.constants: dict[str, torch.Tensor] = {}
        self.sizes = Sizes(module.graph, names)
        self.random_device = device_drawn_on(module)
        self.composites = _C.asked_composites()

    def program(self, arguments: Sequence[Any]) -> Any:
        """Returns the program for arguments like these: tensors, fake ones included, and numbers.

        Raises:
            Refused: calls of the graph can't be part of a program.
        """
        trace = _C.Trace()
        inputs: list[Any] = []
        sizes: list[Any] = []
        with tracing_calls(), composites.asking(self.composites):
            for value in arguments:
                if isinstance(value, torch.Tensor):
                    shape, strides = ([size_now(size) for size in each] for each in (value.shape, value.stride()))
                    inputs.append(make_placeholder(trace, value, (shape, strides)))
                    sizes.append(shape)
                    continue
                number = size_now(value) if isinstance(value, torch.SymInt) else value
                trace.number(number)
                inputs.append(number)
                sizes.append(number)
            self.sizes.report(sizes)
            symbols = Symbols(self.module.graph, inputs)
            run = Placeholders(self.module, self.constants, self.random_device, symbols)
            results = pytree.tree_leaves(run.run(*inputs), is_leaf=lambda x: x is None)
            if run.refused:
                raise Refused(run.refused)
            asserted = taken()
            show(trace, inputs, results)
            return trace.compile(results, result_devices(self.module, results), self.random_device, asserted)
