# The C++ core, bound in src/python. Made by ./dev stubs: change the bindings, not this.
"""
The C++ core of torch_pjrt.
"""

from __future__ import annotations

import collections.abc
import typing

import torch
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d

__all__: list[str] = [
    "Attendance",
    "BareProgram",
    "Captured",
    "Composites",
    "ExportedText",
    "ExportedTrace",
    "FileProgram",
    "ForeignFunction",
    "FrozenWeight",
    "Function",
    "Group",
    "Kernel",
    "Placeholder",
    "Program",
    "Region",
    "Requirement",
    "Seal",
    "Trace",
    "add_default_kernel",
    "add_kernel",
    "asked_composites",
    "assert_zero",
    "attribute",
    "backend_of_processes",
    "begin_assertions",
    "begin_optimizer_step",
    "begin_processes",
    "begin_world",
    "borrow",
    "complete_backend_of_processes",
    "complete_world_backend",
    "composite_names",
    "composites_switch",
    "count_fallback",
    "current_device",
    "default_composites",
    "default_generator",
    "depending",
    "device_count",
    "device_index",
    "device_properties",
    "digest",
    "drop_older_programs",
    "eager",
    "end_assertions",
    "end_optimizer_step",
    "export_trace",
    "finish",
    "forget_programs",
    "freezes_convolutions",
    "graph",
    "groups_of",
    "hand_over",
    "handler_version",
    "has_library_convolutions",
    "has_no_values",
    "has_one_value",
    "host_backend",
    "host_of",
    "host_view",
    "if_else",
    "in_forked_child",
    "init",
    "is_convolution_worth_a_call",
    "is_copied",
    "is_host_memory",
    "is_initialized",
    "is_pending",
    "is_shared",
    "keep_accelerator",
    "longer",
    "make_composites",
    "mark_read_only",
    "metrics",
    "most_devices",
    "newest_node_id",
    "node_id",
    "per_rank",
    "placeholders_below",
    "platform_name",
    "platform_version",
    "plugin",
    "plugin_memory",
    "process",
    "promised_equal",
    "register_handler",
    "reset_metrics",
    "rests_on",
    "run_backward",
    "seal",
    "set_accelerator_here",
    "set_compile_policy",
    "set_composites_switch",
    "set_device",
    "set_eager",
    "set_foreign_trace",
    "set_location",
    "set_program_listener",
    "set_python_sources",
    "set_run_listener",
    "set_seal",
    "set_strict",
    "set_tracing",
    "set_truth_source",
    "snapshot",
    "stablehlo",
    "start_all",
    "start_log",
    "stop_log",
    "stop_other_threads",
    "strict",
    "sync",
    "take_assertions",
    "take_log",
    "tracing",
    "user_location",
    "values_of_rank",
    "wait",
    "ways",
    "while_loop",
    "world_backend",
    "world_size",
    "write_protected",
]

class Attendance:
    def __init__(
        self,
        store: torch.distributed.distributed_c10d.Store,
        ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        rank: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        of a group: its store and its ranks, of which this is one
        """

class BareProgram:
    """
    a StableHLO program through bare PJRT, for comparison
    """
    def __init__(self, arg0: str) -> None: ...
    def call(
        self, arg0: collections.abc.Sequence[torch.Tensor], arg1: typing.SupportsInt | typing.SupportsIndex
    ) -> float:
        """
        nanoseconds of making buffers, executing and destroying them
        """
    def execute(self) -> float: ...
    def set_arguments(
        self,
        arg0: collections.abc.Sequence[torch.Tensor],
        arg1: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None: ...

class Program:
    """
    a traced function for arguments of certain sizes
    """
    @property
    def mutated(self) -> list[int]: ...

class Trace:
    """
    placeholders for the arguments of a function, then the program that it is
    """
    @staticmethod
    def is_known(arg0: torch.Tensor) -> bool:
        """
        is the tensor's value the same in every call?
        """
    @staticmethod
    def same(arg0: torch.Tensor, arg1: torch.Tensor) -> bool:
        """
        were two tensors computed in the same way from the same values?
        """
    def __init__(self, device: typing.SupportsInt | typing.SupportsIndex | None = None) -> None: ...
    def alias(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor: ...
    def changed(self) -> list[bool]:
        """
        of each argument: has its memory a new value?
        """
    def compile(
        self,
        results: collections.abc.Iterable[typing.Any],
        devices: collections.abc.Sequence[torch.device],
        random_device: torch.device,
        also: collections.abc.Sequence[torch.Tensor] = [],
    ) -> Program: ...
    def keep(self, arg0: collections.abc.Sequence[bool]) -> None:
        """
        lets go of arguments that nothing depends on
        """
    def number(self, arg0: typing.Any) -> None: ...
    def reached(self, arg0: collections.abc.Sequence[torch.Tensor]) -> list[bool]:
        """
        of each argument: do these tensors depend on its first value?
        """
    def tensor(
        self,
        device: torch.device,
        dtype: typing.Any,
        sizes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        conjugate: bool = False,
        negative: bool = False,
    ) -> torch.Tensor: ...

class Region:
    """
    a part of a trace that is repeated or chosen
    """
    def __init__(self, operands: collections.abc.Sequence[torch.Tensor]) -> None: ...
    def finish(self, results: collections.abc.Sequence[torch.Tensor]) -> None: ...
    @property
    def placeholders(self) -> list[torch.Tensor]: ...

class Function:
    """
    a traced function: a list of arguments in, a list of results out
    """
    def __call__(self, arg0: list[typing.Any]) -> list[typing.Any]: ...
    def __init__(
        self,
        specialize: collections.abc.Callable[..., Program],
        plain: collections.abc.Callable[..., collections.abc.Iterable[typing.Any]],
    ) -> None: ...
    def add(self, arg0: Program) -> None: ...
    def call_with(self, *args: typing.Any) -> list[typing.Any]:
        """
        the same for arguments that are not in a list
        """
    @property
    def programs(self) -> list[Program]: ...

class Placeholder:
    """
    what a tensor that has no value stands for
    """
    def __init__(self, tensor: torch.Tensor) -> None: ...
    def tensor(self) -> torch.Tensor:
        """
        another tensor that stands for it
        """
    @property
    def address(self) -> int: ...
    @property
    def is_alive(self) -> bool:
        """
        does anything rest on it?
        """

class ForeignFunction:
    """
    a function in StableHLO, to be called by nodes
    """
    def __call__(self, operands: collections.abc.Sequence[torch.Tensor]) -> list[torch.Tensor]: ...
    def __init__(
        self,
        label: str,
        name: str,
        functions: str,
        operands: collections.abc.Sequence[
            tuple[typing.Any, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]
        ],
        results: collections.abc.Sequence[
            tuple[typing.Any, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]
        ],
        device: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...

class Seal:
    """
    what is not to be written: what has a value now
    """
    def __init__(self) -> None: ...
    def covers(self, tensor: torch.Tensor) -> bool: ...

class Requirement:
    """
    what a program requires of its data
    """
    @property
    def high(self) -> int: ...
    @property
    def index_error(self) -> bool: ...
    @property
    def low(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def op(self) -> str: ...

class ExportedText:
    """
    a program that leaves this process, as text
    """
    @property
    def composites(self) -> list[tuple[str, str, int]]: ...
    @property
    def draws(self) -> bool: ...
    @property
    def hints(self) -> set[str]: ...
    @property
    def options(self) -> dict[str, str | bool | int | float]: ...
    @property
    def platform(self) -> str: ...
    @property
    def requirements(self) -> list[Requirement]: ...
    @property
    def text(self) -> str: ...

class ExportedTrace:
    """
    a trace as a program that leaves this process
    """
    @property
    def constants(self) -> list[torch.Tensor]: ...
    @property
    def parameters(self) -> list[int]: ...
    @property
    def texts(self) -> list[ExportedText]: ...
    @property
    def updated(self) -> list[int]: ...

class FileProgram:
    """
    a program in a file
    """
    def __init__(
        self,
        path: str,
        weights: str,
        kernels: collections.abc.Sequence[str],
        device: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def call(
        self, entry: str, arguments: collections.abc.Sequence[torch.Tensor], on_device: bool
    ) -> list[torch.Tensor]: ...
    def describe(self) -> str: ...
    def load_state(self, arg0: str, arg1: bool) -> None: ...
    def prepare(self, arg0: str) -> None: ...
    def save_state(self, arg0: str) -> None: ...
    def set_state(self, name: str, value: torch.Tensor) -> None: ...
    def state(self, name: str) -> torch.Tensor: ...

class Captured:
    """
    a program and what its state must be like
    """
    def __init__(
        self,
        program: Program,
        requires_grad: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        absent: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        cleared: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        followers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        form: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def call(self, arg0: tuple[typing.Any, ...], *args: typing.Any, **kwargs: typing.Any) -> typing.Any: ...

class Composites:
    """
    what composites are asked for; equal sets are one object
    """
    def contains(self, arg0: str) -> bool: ...
    @property
    def all(self) -> bool: ...
    @property
    def names(self) -> set[str]: ...
    @property
    def renamed(self) -> dict[str, str]: ...

class Group:
    """
    a function that is traced to be one node
    """
    def __init__(self, operands: collections.abc.Sequence[torch.Tensor]) -> None: ...
    def end(self) -> None:
        """
        gives what it has written to its values back
        """
    def record(
        self, name: str, attributes: collections.abc.Mapping[str, str], results: collections.abc.Sequence[torch.Tensor]
    ) -> list[torch.Tensor]: ...
    def written(self) -> list[int]:
        """
        which operands it has written to so far; -1: another tensor
        """
    @property
    def placeholders(self) -> list[torch.Tensor]: ...

class Kernel:
    """
    who may do a composite; lives for the process
    """
    def remove(self) -> None: ...
    @property
    def composite(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def platform(self) -> str: ...

class FrozenWeight:
    """
    a convolution's, as programs find it by its number
    """
    def __init__(self) -> None: ...
    def put(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        padding: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        dilation: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        groups: typing.SupportsInt | typing.SupportsIndex,
        images: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        from now on it is this one, for images of these sizes
        """
    @property
    def number(self) -> int: ...

def _bench_add(arg0: torch.Tensor, arg1: torch.Tensor, arg2: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    x + y in a C++ loop; nanoseconds a call
    """

def _bench_prepare(arg0: torch.Tensor) -> int:
    """
    nanoseconds from the read of a tensor with a known graph to the call of execute, without calling it
    """

def _calls_counts() -> dict[str, int]: ...
def add_default_kernel(
    composite: str, platform: str, label: str, claim: collections.abc.Callable[..., typing.Any]
) -> None:
    """
    one that nobody has to ask for, for the life of the process
    """

def add_kernel(
    composite: str, platform: str, label: str, claim: collections.abc.Callable[..., typing.Any]
) -> Kernel: ...
def asked_composites() -> Composites:
    """
    with the kernels of now; None: none
    """

def assert_zero(violations: torch.Tensor, error: str, message: str) -> None:
    """
    what must hold whenever the traced function runs
    """

@typing.overload
def attribute(value: bool) -> str: ...
@typing.overload
def attribute(value: int) -> str: ...
@typing.overload
def attribute(value: float) -> str: ...
@typing.overload
def attribute(arg0: str) -> str: ...
@typing.overload
def attribute(value: list[bool]) -> str: ...
@typing.overload
def attribute(value: list[int]) -> str: ...
@typing.overload
def attribute(value: list[float]) -> str: ...
@typing.overload
def attribute(arg0: collections.abc.Sequence[str]) -> str: ...
def backend_of_processes(
    ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    host: torch._C._distributed_c10d.Backend,
    attendance: Attendance,
) -> torch._C._distributed_c10d.Backend: ...
def begin_assertions() -> None:
    """
    of a part of a trace that computes its own
    """

def begin_optimizer_step(arg0: bool) -> None: ...
def begin_processes(
    store: torch.distributed.distributed_c10d.Store,
    rank: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
    place_on_host: collections.abc.Callable[[], tuple[int, int]],
) -> bool:
    """
    starts this process's part of a client of several, where the plugin is for GPUs; did it?
    """

def begin_world(size: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    makes the first devices a world (Note [World])
    """

def borrow(arg0: torch.Tensor, arg1: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor | None: ...
def complete_backend_of_processes(
    backend: torch._C._distributed_c10d.Backend,
    groups: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]],
) -> None: ...
def complete_world_backend(
    backend: torch._C._distributed_c10d.Backend,
    groups: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]],
) -> None: ...
def composite_names() -> set[str]:
    """
    those of ops
    """

def composites_switch() -> Composites:
    """
    what was asked for last
    """

def count_fallback(arg0: str) -> bool:
    """
    counts it; whether it was the first of this op
    """

def current_device() -> int: ...
def default_composites() -> Composites:
    """
    those that a kernel can claim
    """

def default_generator(arg0: typing.SupportsInt | typing.SupportsIndex) -> torch.Generator: ...
def depending(result: torch.Tensor, taken: torch.Tensor) -> torch.Tensor: ...
def device_count() -> int: ...
def device_index(arg0: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    the index, if there is such a device
    """

def device_properties(arg0: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...
def digest(tensors: collections.abc.Sequence[torch.Tensor]) -> bytes:
    """
    of the content of tensors on the CPU
    """

def drop_older_programs() -> None: ...
def eager() -> bool: ...
def end_assertions() -> None: ...
def end_optimizer_step(arg0: collections.abc.Sequence[torch.Tensor]) -> None: ...
def export_trace(trace: Trace, results: collections.abc.Sequence[torch.Tensor]) -> ExportedTrace: ...
def finish() -> list[str]:
    """
    waits for all that is under way; gives the errors that nobody was told of
    """

def forget_programs() -> None: ...
def freezes_convolutions(arg0: typing.Any) -> bool: ...
def graph(arg0: collections.abc.Sequence[torch.Tensor]) -> str: ...
def groups_of(group: torch.distributed.distributed_c10d.ProcessGroup) -> tuple[list[int], int]:
    """
    of a group of the world: all groups of its kind, one behind the other, and their size
    """

def hand_over(
    inputs: collections.abc.Sequence[torch.Tensor],
    results: collections.abc.Sequence[torch.Tensor],
    key: typing.SupportsInt | typing.SupportsIndex | None = None,
) -> tuple[str, list[torch.Tensor]]:
    """
    a trace as StableHLO: the text, and the constants that @main takes after the inputs
    """

def handler_version(address: typing.SupportsInt | typing.SupportsIndex) -> tuple[int, int]:
    """
    of XLA's FFI, that the handler was compiled for; (0, 0): it doesn't tell
    """

def has_library_convolutions(arg0: typing.Any) -> bool: ...
def has_no_values(arg0: tuple[typing.Any, ...]) -> bool:
    """
    is there nothing to run a program on: is PyTorch tracing, or is an argument a fake tensor?
    """

def has_one_value(tensor: torch.Tensor) -> bool:
    """
    whether all ranks of the world have the same values of it
    """

def host_backend(
    host: torch._C._distributed_c10d.Backend, attendance: Attendance
) -> torch._C._distributed_c10d.Backend: ...
def host_of(backend: torch._C._distributed_c10d.Backend) -> torch._C._distributed_c10d.Backend: ...
def host_view(arg0: torch.Tensor) -> torch.Tensor:
    """
    a CPU tensor with the values; over the device's own memory where that is the host's, so not to be written
    """

def if_else(
    predicate: torch.Tensor, operands: collections.abc.Sequence[torch.Tensor], on_true: Region, on_false: Region
) -> list[torch.Tensor]: ...
def in_forked_child() -> bool: ...
def init(arg0: str, arg1: str) -> None: ...
def is_convolution_worth_a_call(
    dtype: typing.Any,
    multiplications: typing.SupportsInt | typing.SupportsIndex,
    stride: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
) -> bool:
    """
    does oneDNN do it right, and save more than a call costs? By the stride and size of the result's last dimension
    """

def is_copied(arg0: torch.Tensor) -> bool:
    """
    would each call of a compiled function copy this argument?
    """

def is_host_memory() -> bool: ...
def is_initialized() -> bool: ...
def is_pending(arg0: torch.Tensor) -> bool: ...
def is_shared(arg0: torch.device) -> bool:
    """
    is this device of PyTorch's own the plugin's, too?
    """

def keep_accelerator() -> None: ...
def longer(list: str, values: collections.abc.Sequence[str]) -> str: ...
def make_composites(arg0: bool, arg1: collections.abc.Set[str], arg2: collections.abc.Mapping[str, str]) -> Composites:
    """
    None where they ask for none
    """

def mark_read_only(arg0: typing.Any) -> None: ...
def metrics() -> dict[str, typing.Any]: ...
def most_devices() -> int: ...
def newest_node_id() -> int: ...
def node_id(arg0: torch.Tensor) -> int | None:
    """
    nodes are numbered as they are recorded; 0: it was computed already; None: it is a placeholder, or has no value
    """

def per_rank(values: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> torch.Tensor:
    """
    a 0-d int64 tensor that is values[rank] on each rank of the world
    """

def placeholders_below(tensors: collections.abc.Sequence[torch.Tensor]) -> list[int]:
    """
    the addresses of the placeholders that the tensors rest on
    """

def platform_name() -> str: ...
def platform_version() -> str: ...
def plugin() -> tuple[str, str]: ...
def plugin_memory(arg0: typing.SupportsInt | typing.SupportsIndex) -> dict[str, int]: ...
def process() -> tuple[int, int] | None:
    """
    which of how many processes have the client together; None where it is this one's alone
    """

def promised_equal(tensor: torch.Tensor) -> torch.Tensor:
    """
    the same values, said to be equal on all ranks of the world: whoever reads them compares
    """

def register_handler(target: str, address: typing.SupportsInt | typing.SupportsIndex, place: str) -> None:
    """
    with the plugin that the program being made is for
    """

def reset_metrics() -> None: ...
def rests_on(tensor: torch.Tensor, others: collections.abc.Sequence[torch.Tensor]) -> bool: ...
def run_backward(
    engine: collections.abc.Callable[..., typing.Any], args: tuple[typing.Any, ...], how: dict[str, typing.Any]
) -> typing.Any:
    """
    calls the autograd engine: roots first (Note [Backward])
    """

def seal() -> Seal | None: ...
def set_accelerator_here(arg0: bool) -> bool: ...
def set_compile_policy(arg0: str) -> None: ...
def set_composites_switch(asked: Composites) -> None: ...
def set_device(arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
def set_eager(arg0: bool) -> None: ...
def set_foreign_trace(
    value_needed: collections.abc.Callable[[int, str], str],
    before_write: collections.abc.Callable[[torch.Tensor, str], None],
) -> None:
    """
    who is asked where torch code is in the middle of another framework's trace
    """

def set_location(arg0: str, arg1: typing.SupportsInt | typing.SupportsIndex) -> None: ...
def set_program_listener(arg0: collections.abc.Callable[[str, str], None]) -> None: ...
def set_python_sources(
    plugins: collections.abc.Callable[[], list[tuple[str, str]]], decompose: collections.abc.Callable[..., typing.Any]
) -> None:
    """
    what the core asks of the package
    """

def set_run_listener(arg0: collections.abc.Callable[[str], None]) -> None: ...
def set_seal(seal: Seal | None) -> None: ...
def set_strict(arg0: bool) -> None: ...
def set_tracing(arg0: bool) -> None: ...
def set_truth_source(truth: collections.abc.Callable[[torch.Tensor], bool | None]) -> None:
    """
    who is asked about branches on what is traced
    """

def snapshot(arg0: torch.Tensor) -> torch.Tensor | None:
    """
    a tensor over the same memory, as it stays when the given one is written to
    """

def stablehlo(
    tensors: collections.abc.Sequence[torch.Tensor], for_cpu: bool = False, knows_composites: bool = True
) -> str: ...
def start_all(arg0: str) -> None: ...
def start_log() -> None: ...
def stop_log() -> None: ...
def stop_other_threads() -> None: ...
def strict() -> bool: ...
def sync(arg0: collections.abc.Sequence[torch.Tensor], arg1: str) -> None: ...
def take_assertions() -> torch.Tensor | None:
    """
    a tensor that depends on all that was asserted
    """

def take_log() -> list[dict[str, typing.Any]]: ...
def tracing() -> bool:
    """
    is a function being traced in this thread?
    """

def user_location() -> tuple[str, int]: ...
def values_of_rank(tensor: torch.Tensor, rank: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor:
    """
    a copy on the CPU of what one rank of the world has
    """

def wait(arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
def ways(tensors: collections.abc.Sequence[torch.Tensor]) -> list[tuple[str, str]]:
    """
    the pending calls that they depend on, and what does each: a rule, a decomposition or a kernel
    """

def while_loop(
    operands: collections.abc.Sequence[torch.Tensor],
    carried: typing.SupportsInt | typing.SupportsIndex,
    condition: Region,
    body: Region,
) -> list[torch.Tensor]: ...
def world_backend(
    ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
) -> torch._C._distributed_c10d.Backend: ...
def world_size() -> int:
    """
    on how many devices a tensor lies
    """

def write_protected(arg0: torch.Tensor) -> torch.Tensor | None:
    """
    a tensor over the same memory; a write copies it first, and counts it
    """
