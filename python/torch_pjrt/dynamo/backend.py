"""The backend ``"pjrt"`` of ``torch.compile``, found by its entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch import fx
from torch._dynamo.device_interface import register_interface_for_device
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.composite_ops.asked import made
from torch_pjrt.composite_ops.known import known
from torch_pjrt.dynamo import comparing, composites, layouts, optimizers
from torch_pjrt.dynamo.around import compile_around
from torch_pjrt.dynamo.composites import asking
from torch_pjrt.dynamo.device_interface import PjrtInterface
from torch_pjrt.dynamo.freezing import freeze
from torch_pjrt.dynamo.own_kernels import own_kernels
from torch_pjrt.dynamo.pieces import Compiled, compile_graph
from torch_pjrt.dynamo.recompiles import argument_names, input_names, report_guards
from torch_pjrt.dynamo.rewrites import rewrite
from torch_pjrt.dynamo.sharing import while_memory_is_shared_alike
from torch_pjrt.dynamo.skipped import skip
from torch_pjrt.dynamo.splitting import outputs_of
from torch_pjrt.dynamo.tracing import user_line
from torch_pjrt.program.residence import check_residence
from torch_pjrt.program.subclasses import check as check_subclass

if TYPE_CHECKING:
    from torch_pjrt.traces.collector import Collector

OPTIONS = {
    "retrace": "record the graph again in every call, as the lazy device does (for comparison)",
    "verify": "run eager beside each graph, and raise on the first result or mutation that differs",
    "freeze": "parameters are part of what is compiled for inference, until they are seen to change",
    "trace": "what torch_pjrt.last_traces(compiled) shows is taken down",
    "composites": 'the composites that its programs have: what torch_pjrt.composites takes, such as "all"',
}
# LSTM and GRU are captured; by default Dynamo leaves them to libraries that run them in eager mode.
torch._dynamo.config.allow_rnn = True
# Calls of torch.pjrt (synchronize, set_rng_state, …) in a compiled function are not traced, as for torch.cuda.
skip("torch_pjrt")
register_interface_for_device("pjrt", PjrtInterface)
layouts.install()
composites.install()
optimizers.install()

MODES = ("default", "reduce-overhead")


def checked_options(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    if mode not in (None, *MODES):
        raise ValueError(
            f"backend 'pjrt' has no mode '{mode}'; it has {' and '.join(map(repr, MODES))} (the same: calls are always "
            "made from C++, and XLA has no autotuning to choose)"
        )
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            known = "; ".join(f"'{option}': {meaning}" for option, meaning in OPTIONS.items())
            raise ValueError(f"backend 'pjrt' has no option '{name}'; it has {known}")
        if not isinstance(value, bool) and name not in ("composites", "trace"):
            raise TypeError(f"option '{name}' of backend 'pjrt' is True or False, not {value!r}")
    return dict(options or {})


def check_devices(values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, torch.Tensor) or value.device.type in ("cpu", "pjrt") or _C.is_shared(value.device):
            continue
        raise NotImplementedError(
            "backend 'pjrt' compiles for tensors on 'cpu' and 'pjrt', and on 'cuda' with a plugin for it. An input is "
            f"on '{value.device}', and the plugin computes on '{_C.platform_name()}': move it and the module to 'pjrt'"
        )


def check_subclasses(module: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Raises for ill-formed subclasses, which AOTAutograd flattens and rebuilds without a check."""
    for name, value in zip(input_names(module), example_inputs, strict=True):
        check_subclass(value, f"argument {name}")
    for node in pytree.tree_leaves(outputs_of(module)):
        if isinstance(node, fx.Node) and node.op != "placeholder":
            file, line = user_line(node)
            check_subclass(node.meta.get("example_value"), f"the result of {file}:{line}")


def check_rank_parts(module: fx.GraphModule) -> None:
    """Raises for a copy that stands for a view, the part of a tensor at a place that differs by rank, where one could
    tell. The FakeTensors of Dynamo have seen all writes, and count them as PyTorch does."""
    nodes = [node for each in module.modules() if isinstance(each, fx.GraphModule) for node in each.graph.nodes]
    returned = [
        of for node in nodes if node.op == "output" for of in node.all_input_nodes if "example_value" in of.meta
    ]
    results = [of for of in pytree.tree_leaves([of.meta["example_value"] for of in returned]) if torch.is_tensor(of)]
    for node in nodes:
        if node.target != torch.ops.pjrt_world.narrow or all(user.target == "clone" for user in node.users):
            continue
        part, whole = (of.meta["example_value"] for of in (node, node.args[0]))
        if part._version or whole._version or any(torch._C._is_alias_of(part, result) for result in results):
            file, line = user_line(node)
            raise NotImplementedError(
                f"{file}:{line}: x.narrow(dim, start, n), whose start differs by rank, is a copy in a world in one "
                "process, and this compiled function writes to it or to x, or returns it. clone() the part to read it. "
                'Write x itself, as in x.index_copy_(dim, start + torch.arange(n, device="pjrt"), values)'
            )


def forget_current_stream(module: fx.GraphModule) -> None:
    """Removes the look-up of the current stream before each call, for graphs that don't name streams.

    With an accelerator, Dynamo does it in Python for every graph."""
    import torch._dynamo.graph_bytecode_inputs as registry

    looked_up = getattr(registry, "index_to_bytecode_constructor", {})
    names_streams = any("stream" in str(node.target) for node in module.graph.nodes if node.op == "call_function")
    if list(looked_up) == [getattr(registry, "CURRENT_STREAM_INDEX", None)] and not names_streams:
        looked_up.clear()


# Types of values that are arguments or results themselves; other subclasses of Tensor are flattened and rebuilt.
PLAIN = (FakeTensor, torch.Tensor, torch.nn.Parameter, int)


def gives_plain_results(module: fx.GraphModule) -> bool:
    """Whether the captured graph returns plain tensors; AOTAutograd's graphs have only the parts of subclasses."""
    results = pytree.tree_leaves(outputs_of(module))
    values = [node.meta.get("example_value", node.meta.get("val")) for node in results if isinstance(node, fx.Node)]
    return all(type(value) in (*PLAIN, torch.SymInt) for value in values)


def needs_no_wrapper(module: fx.GraphModule, example_inputs: Sequence[Any], graph_inputs: Sequence[Any]) -> bool:
    """Whether AOTAutograd's inference graph of ``module`` can be called with the arguments as they are.

    Called while AOTAutograd compiles that graph. Its wrapper, which adapts arguments and results and restores state,
    costs more than a small program."""
    context = torch._guards.TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    if about is None or len(graph_inputs) != len(example_inputs):
        return False
    plain = all(type(value) in PLAIN for value in example_inputs) and gives_plain_results(module)
    unchanged = not any(info.mutates_data or info.mutates_metadata for info in about.input_info)
    own = about.num_outputs_aliased == 0 and about.num_intermediate_bases == 0 and not about.dynamic_outputs
    stateless = not about.tokens and about.num_graphsafe_rng_states == 0 and not about.is_rng_op_functionalized
    return plain and unchanged and own and stateless and about.grad_enabled_mutation is None


def collector_of(
    asked: Any, module: fx.GraphModule, example_inputs: Sequence[Any], inputs: Sequence[str]
) -> Collector | None:
    """Returns a collector if a trace is asked for or rules are registered, else None."""
    rules = sys.modules.get("torch_pjrt.traces.rules")
    if asked in (None, False) and (rules is None or not rules.are_there()):
        return None
    from torch_pjrt.traces.collector import Collector
    from torch_pjrt.traces.taken import traces_of
    from torch_pjrt.traces.trace import Traces

    traces = asked if isinstance(asked, Traces) else Traces()
    if asked is True:
        traces = traces_of(being_compiled())
    return Collector(traces, module, example_inputs, inputs)


def being_compiled() -> Any:
    """Returns the function that the user passed to torch.compile, whose frames this Dynamo frame runs; or None."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("fn")


def keep_what_was_saved() -> None:
    """Tells AOTAutograd, while it compiles a backward, that the backward may run again (``retain_graph=True``).

    AOTAutograd assumes that a compiled backward overwrites the tensors that the forward saved; programs don't."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def pjrt(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo captured: forward and, if something requires grad, backward.

    Tensors may be on the CPU or, with a plugin for it, on CUDA, where they are used in place; and on ``"pjrt"``.

    Args:
        module: the captured graph.
        example_inputs: fake tensors and symbolic sizes.
        mode: ``"default"`` or ``"reduce-overhead"``, which have the same effect.
        options: ``{"retrace": True}``, ``{"verify": True}``, ``{"composites": "all"}``; see ``OPTIONS``.

    Raises:
        ValueError: the mode or an option is unknown.
        NotImplementedError: a tensor is on another device.
    """
    from torch._dynamo.backends.common import aot_autograd

    from torch_pjrt.dynamo.kept.partition import partition

    settings = checked_options(mode, options)
    asked = made(settings["composites"]) if "composites" in settings else _C.asked_composites()
    check_devices(example_inputs)
    check_residence(example_inputs)
    check_subclasses(module, example_inputs)
    check_rank_parts(module)
    report_guards(module, example_inputs)
    inputs_of_user = input_names(module)
    collector = collector_of(settings.get("trace"), module, example_inputs, inputs_of_user)

    def compiler(
        graph: fx.GraphModule, inputs: Sequence[Any], which: str = "forward"
    ) -> Callable[[list[Any]], Sequence[Any]]:
        with asking(asked), collector.compiling(which) if collector else nullcontext():
            return compile_asked(graph, inputs)  # for a backward, at its first call

    def compile_asked(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        if settings.get("retrace"):
            return comparing.retraced(graph)
        names = argument_names(graph.graph, inputs_of_user)
        function = compile_around(compile_graph, graph, inputs, names)
        return comparing.verified(graph, function, names) if settings.get("verify") else function

    def frozen(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        def rest(module: fx.GraphModule, given: Sequence[Any], names: Sequence[str]) -> Any:
            with asking(asked), collector.compiling("forward") if collector else nullcontext():
                return compile_around(compile_graph, module, given, names)

        names = argument_names(graph.graph, inputs_of_user)
        function = freeze(graph, inputs, names, rest)
        return comparing.verified(graph, function, names) if settings.get("verify") else function

    def backward_compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        keep_what_was_saved()
        return compiler(graph, inputs, "backward")

    direct: list[Callable[..., Any]] = []

    def inference_compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        if collector is not None:
            collector.inference(graph)
        function = frozen(graph, inputs) if settings.get("freeze") else compiler(graph, inputs)
        if isinstance(function, Compiled) and needs_no_wrapper(module, example_inputs, inputs):
            direct.append(function.direct)
        return function

    def split(joint: fx.GraphModule, inputs: Sequence[Any], **about: Any) -> Any:
        return collector.split(partition, joint, inputs, about) if collector else partition(joint, inputs, **about)

    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=backward_compiler,
        inference_compiler=inference_compiler,
        partition_fn=split,
        keep_inference_input_mutations=True,
    )
    forget_current_stream(module)
    rewrite(module)
    with asking(asked), own_kernels(), known.traced(), collector.recording() if collector else nullcontext():
        compiled: Callable[..., Any] = backend(module, example_inputs)
    if len(direct) == 1:
        return direct[0]
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return compiled
    return while_memory_is_shared_alike(compiled, module, example_inputs, inputs_of_user, context.fw_metadata)
