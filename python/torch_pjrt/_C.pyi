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
    "Assertion",
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
    "Seal",
    "Shared",
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
    "calls_libraries",
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
    "follow_cpus_autocast",
    "forget_programs",
    "graph",
    "groups_of",
    "hand_over",
    "handler_version",
    "has_no_values",
    "has_one_value",
    "host_backend",
    "host_of",
    "host_view",
    "if_else",
    "in_forked_child",
    "init",
    "is_claimed",
    "is_copied",
    "is_host_memory",
    "is_initialized",
    "is_pending",
    "is_shared",
    "keep_accelerator",
    "longer",
    "lstm_workspace_bytes",
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
    "set_interprets_growing",
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
    """
    The ranks of a process group and the store in which they announce themselves, to name those that are late.
    """
    def __init__(
        self,
        store: torch.distributed.distributed_c10d.Store,
        ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        rank: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Takes the store of a process group, the global ranks in it, and this process's rank.
        """

class BareProgram:
    """
    A StableHLO program called through the PJRT C API alone: the reference of ``./dev bench``.
    """
    def __init__(self, arg0: str) -> None:
        """
        Compiles StableHLO text for the current client; in a world, for all of its devices.
        """
    def call(
        self, arg0: collections.abc.Sequence[torch.Tensor], arg1: typing.SupportsInt | typing.SupportsIndex
    ) -> float:
        """
        Returns the nanoseconds of one call that makes buffers over CPU tensors, executes, waits and destroys the buffers: a mean of ``arg1`` calls.
        """
    def execute(self) -> float:
        """
        Returns the seconds of one execution, including the wait for its results.
        """
    def set_arguments(
        self,
        arg0: collections.abc.Sequence[torch.Tensor],
        arg1: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        Uploads CPU tensors as arguments. Entry i of the second list is the result that may be written over argument i, or -1.
        """

class Program:
    """
    A traced function, compiled for arguments of given dtypes, sizes and strides.
    """
    @property
    def mutated(self) -> list[int]:
        """
        Indices of the arguments that a call updates in place.
        """

class Trace:
    """
    Records a function: first placeholders for its arguments, then the calls made on them, then the program.
    """
    @staticmethod
    def is_known(arg0: torch.Tensor) -> bool:
        """
        Returns whether a tensor has the same value in every call.
        """
    @staticmethod
    def same(arg0: torch.Tensor, arg1: torch.Tensor) -> bool:
        """
        Returns whether two tensors were computed in the same way from the same values.
        """
    def __init__(self, device: typing.SupportsInt | typing.SupportsIndex | None = None) -> None:
        """
        Begins a trace on the pjrt device with this index. Default: the current one.
        """
    def alias(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor:
        """
        Returns another tensor with the initial value of the argument with this index.
        """
    def changed(self) -> list[bool]:
        """
        Returns for each argument whether its memory has a new value.
        """
    def compile(
        self,
        results: collections.abc.Iterable[typing.Any],
        devices: collections.abc.Sequence[torch.device],
        random_device: torch.device,
        also: collections.abc.Sequence[torch.Tensor] = [],
    ) -> Program:
        """
        Compiles the trace, which is empty afterwards. ``devices`` has the device of each result that is a tensor. ``random_device``: the device whose generator random calls use. ``also``: values that are computed without being results. Raises RuntimeError if XLA refuses the program.
        """
    def keep(self, arg0: collections.abc.Sequence[bool]) -> None:
        """
        Removes the arguments that nothing depends on.
        """
    def number(self, arg0: typing.Any) -> None:
        """
        Adds a Python bool, int or float as an argument.
        """
    def reached(self, arg0: collections.abc.Sequence[torch.Tensor]) -> list[bool]:
        """
        Returns for each argument whether the given tensors depend on its initial value.
        """
    def tensor(
        self,
        device: torch.device,
        dtype: typing.Any,
        sizes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        conjugate: bool = False,
        negative: bool = False,
    ) -> torch.Tensor:
        """
        Adds a tensor argument. Returns its placeholder, a pjrt tensor with this dtype, these sizes and strides.
        """

class Region:
    """
    A part of a trace that becomes the body of a loop or one side of a branch.
    """
    def __init__(self, operands: collections.abc.Sequence[torch.Tensor]) -> None:
        """
        Begins a region with a placeholder for each operand.
        """
    def finish(self, results: collections.abc.Sequence[torch.Tensor]) -> None:
        """
        Ends the region with these results.
        """
    @property
    def placeholders(self) -> list[torch.Tensor]:
        """
        Tensors that stand for the operands inside the region.
        """

class Shared:
    """
    A compiled function that is valid while its arguments share memory as they did.
    """
    def __init__(
        self,
        compiled: typing.Any,
        otherwise: collections.abc.Callable[
            [
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                tuple[typing.Any, ...],
            ],
            typing.Any,
        ],
        updated: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        groups: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        offsets: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        ``updated``: indices of the arguments that the function updates in place. ``groups``: for each argument the first of those that shared memory when it was compiled, or -1. ``offsets``: its offset in that memory. ``otherwise(i, j, arguments)`` computes a call in which arguments i and j share memory differently.
        """
    def call(self, *args: typing.Any) -> typing.Any:
        """
        Calls the compiled function, or ``otherwise`` if arguments share memory differently from the compiled call.
        """

class Function:
    """
    A traced function with a program for each set of argument sizes. It takes and returns lists.
    """
    def __call__(self, arg0: list[typing.Any]) -> list[typing.Any]:
        """
        Calls with a list of tensors, numbers and None, and returns the list of results. The argument list is empty afterwards, which releases tensors early.
        """
    def __init__(
        self,
        specialize: collections.abc.Callable[..., Program],
        plain: collections.abc.Callable[..., collections.abc.Iterable[typing.Any]],
    ) -> None:
        """
        ``specialize(arguments)`` returns the Program for arguments of new sizes. ``plain(arguments)`` computes the results with PyTorch's own calls, for fake tensors and for forward-mode differentiation.
        """
    def add(self, arg0: Program) -> None:
        """
        Adds a program. The least recently used one is dropped when there are more than 256.
        """
    def call_with(self, *args: typing.Any) -> list[typing.Any]:
        """
        Calls with separate arguments, without recording gradients. Returns the list of results.
        """
    @property
    def programs(self) -> list[Program]:
        """
        The programs, the most recently used first.
        """

class Placeholder:
    """
    The identity of a tensor that has no value, in a trace of another framework.
    """
    def __init__(self, tensor: torch.Tensor) -> None:
        """
        Takes a tensor that has no value.
        """
    def tensor(self) -> torch.Tensor:
        """
        Returns another tensor that stands for the same value.
        """
    @property
    def address(self) -> int:
        """
        A number that identifies the placeholder in this process.
        """
    @property
    def is_alive(self) -> bool:
        """
        Whether a tensor or a pending call still depends on it.
        """

class ForeignFunction:
    """
    A function given as StableHLO text, whose calls are recorded as nodes.
    """
    def __call__(self, operands: collections.abc.Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """
        Records a call. Takes pjrt tensors of the operands' dtypes and sizes, and returns the results as tensors.
        """
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
    ) -> None:
        """
        ``functions`` is StableHLO text that defines ``name``. ``operands`` and ``results`` are their dtypes and sizes; all arrays are row-major. ``label`` names the function in errors.
        """

class Seal:
    """
    The set of tensors that had a value when it was made. While it is set, writes to them raise RuntimeError.
    """
    def __init__(self) -> None:
        """
        Makes a seal over every tensor that has a value now.
        """
    def covers(self, tensor: torch.Tensor) -> bool:
        """
        Returns whether the tensor had a value when the seal was made.
        """

class Assertion:
    """
    A runtime assertion of an exported program: integers in its data must be at least ``low`` and at most ``high``.
    """
    @property
    def high(self) -> int:
        """
        The greatest value allowed.
        """
    @property
    def index_error(self) -> bool:
        """
        Whether an IndexError is raised; otherwise a RuntimeError.
        """
    @property
    def low(self) -> int:
        """
        The least value allowed.
        """
    @property
    def message(self) -> str:
        """
        The error's message. ``{}`` stands for the value, ``{index}`` for its index.
        """
    @property
    def op(self) -> str:
        """
        The ATen op that makes the assertion.
        """

class ExportedText:
    """
    The StableHLO text of an exported program for one platform.
    """
    @property
    def assertions(self) -> list[Assertion]:
        """
        The runtime assertions, in the order of their results.
        """
    @property
    def composites(self) -> list[tuple[str, str, int]]:
        """
        Each composite's name, its implementation and its count.
        """
    @property
    def draws(self) -> bool:
        """
        Whether the program draws random numbers, and so takes their state.
        """
    @property
    def hints(self) -> set[str]:
        """
        Options that a plugin may ignore.
        """
    @property
    def options(self) -> dict[str, str | bool | int | float]:
        """
        Options of XLA that differ from their defaults, by name.
        """
    @property
    def platform(self) -> str:
        """
        The platform's name, such as "cpu"; "any" for all others.
        """
    @property
    def text(self) -> str:
        """
        The module in StableHLO's text form.
        """

class ExportedTrace:
    """
    An exported trace: a text for each platform, and the meaning of its parameters.
    """
    @property
    def constants(self) -> list[torch.Tensor]:
        """
        Tensors that the program takes after its arguments.
        """
    @property
    def parameters(self) -> list[int]:
        """
        Indices of the trace's arguments that the program takes.
        """
    @property
    def texts(self) -> list[ExportedText]:
        """
        One text for each platform.
        """
    @property
    def updated(self) -> list[int]:
        """
        Indices of the arguments whose new values are results.
        """

class FileProgram:
    """
    A program that was opened from a file. Its state is on one pjrt device.
    """
    def __init__(
        self,
        path: str,
        weights: str,
        kernels: collections.abc.Sequence[str],
        device: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Opens the file at ``path``. ``weights``: a file of separate weights, or "". ``kernels``: folders of kernel libraries. ``device``: a pjrt index. Raises RuntimeError if the file is damaged.
        """
    def call(
        self, entry: str, arguments: collections.abc.Sequence[torch.Tensor], on_device: bool
    ) -> list[torch.Tensor]:
        """
        Calls an entry with tensors in the order of its signature. Returns its results on the device if ``on_device``, otherwise on the CPU. Raises RuntimeError if dtypes or sizes differ from the signature.
        """
    def describe(self) -> str:
        """
        Returns the signature as text.
        """
    def load_state(self, arg0: str, arg1: bool) -> None:
        """
        Reads the state from a safetensors file. If ``arg1``, the file may lack some of it.
        """
    def prepare(self, arg0: str) -> None:
        """
        Compiles an entry, which the first call would do otherwise.
        """
    def save_state(self, arg0: str) -> None:
        """
        Writes the state to a safetensors file.
        """
    def set_state(self, name: str, value: torch.Tensor) -> None:
        """
        Sets a piece of state to the values of a tensor of its dtype and sizes. Raises RuntimeError for frozen state.
        """
    def state(self, name: str) -> torch.Tensor:
        """
        Returns a copy of a piece of state, on the CPU.
        """

class Captured:
    """
    A program with the locations of its state, as ``compile_step`` and ``jit`` call it.
    """
    @staticmethod
    def has_values(arg0: dict[str, typing.Any], arg1: tuple[typing.Any, ...]) -> bool:
        """
        Returns whether a dict has these values, in a tuple of keys and values in turn: the same objects, or equal numbers, strings, tuples and lists. NotImplemented stands for a key that is not there.
        """
    def __init__(
        self,
        program: Program,
        requires_grad: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        absent: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        cleared: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        followers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        form: typing.SupportsInt | typing.SupportsIndex,
        names: collections.abc.Sequence[str],
        reads_addresses: bool = False,
        parents: typing.SupportsInt | typing.SupportsIndex = 0,
        readers: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> None:
        """
        Takes a program and its conditions. ``requires_grad`` has an entry for each argument of the program, the call's before the state: 1, 0, or -1 for either. ``absent`` lists state whose ``.grad`` must be None, ``cleared`` state whose ``.grad`` is released after the call. ``followers`` lists, for each CPU scalar that mirrors a piece of state, the index of that piece. ``form``: 0 returns one result, 1 a tuple, 2 a list. ``names`` are those of the program's arguments.
        """
    def call(self, arg0: tuple[typing.Any, ...], *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """
        Looks up the state in ``arg0``, verifies it and runs the program without running Python. Returns NotImplemented, or calls the fallback in ``arg0``, if the arguments don't fit. Raises RuntimeError if an argument that is updated in place shares memory with another one.
        """

class Composites:
    """
    A set of composites that programs keep whole. Equal sets are the same object.
    """
    def contains(self, arg0: str) -> bool:
        """
        Returns whether the composite of this name is kept.
        """
    @property
    def all(self) -> bool:
        """
        Whether every composite is kept.
        """
    @property
    def names(self) -> set[str]:
        """
        Names of the composites that are kept.
        """
    @property
    def renamed(self) -> dict[str, str]:
        """
        The name that each composite has in a program's text, where it differs.
        """

class Group:
    """
    A function that is traced to become one node: a composite.
    """
    def __init__(self, operands: collections.abc.Sequence[torch.Tensor]) -> None:
        """
        Begins a group with a placeholder for each operand.
        """
    def end(self) -> None:
        """
        Ends the group and restores the previous values of tensors that it wrote to.
        """
    def record(
        self, name: str, attributes: collections.abc.Mapping[str, str], results: collections.abc.Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """
        Records the group as one node with this composite name and these attributes in MLIR syntax. Returns its results. Raises RuntimeError if the function draws random numbers.
        """
    def written(self) -> list[int]:
        """
        Returns the indices of the operands that were written to so far; -1 stands for any other tensor.
        """
    @property
    def placeholders(self) -> list[torch.Tensor]:
        """
        Tensors that stand for the operands inside the group.
        """

class Kernel:
    """
    A registered kernel, which may replace a composite. It exists until the process ends.
    """
    def remove(self) -> None:
        """
        Removes the kernel. Programs that already call it keep it.
        """
    @property
    def composite(self) -> str:
        """
        The name of the composite that it replaces.
        """
    @property
    def label(self) -> str:
        """
        The name under which ``explain()`` reports it.
        """
    @property
    def platform(self) -> str:
        """
        The platform that it is for, such as "cpu" or "cuda".
        """

class FrozenWeight:
    """
    A frozen convolution weight, which programs find by its number.
    """
    def __init__(self) -> None:
        """
        Makes an entry without a weight.
        """
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
        Sets the weight, of shape (out, in / groups, height, width), for inputs of the sizes ``images``. Calls that are running keep the previous one.
        """
    @property
    def number(self) -> int:
        """
        The number by which programs find the weight.
        """

def _bench_add(arg0: torch.Tensor, arg1: torch.Tensor, arg2: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Returns the nanoseconds of one ``x + y`` called from C++ whose result is dropped: a mean of ``arg2`` calls.
    """

def _bench_prepare(arg0: torch.Tensor) -> int:
    """
    Returns the nanoseconds from the read of a tensor with a known graph to the call of execute, which is not made.
    """

def _calls_counts() -> dict[str, int]:
    """
    Returns how many plans of interpreted graphs were made, and how many host arrays the plugin uses in place.
    """

def add_default_kernel(
    composite: str, platform: str, label: str, claim: collections.abc.Callable[..., typing.Any]
) -> None:
    """
    Registers a kernel that is used unless ``TORCH_PJRT_LIBRARY_KERNELS=0`` is set. It can't be removed.
    """

def add_kernel(composite: str, platform: str, label: str, claim: collections.abc.Callable[..., typing.Any]) -> Kernel:
    """
    Registers a kernel for a composite on a platform. ``claim`` is called when a program with the composite is made, and returns the call that replaces it, or None.
    """

def asked_composites() -> Composites:
    """
    Returns the composites that are kept now, including those of registered kernels; None if there are none.
    """

def assert_zero(violations: torch.Tensor, error: str, message: str) -> None:
    """
    Asserts that ``violations``, a tensor of integers or booleans, is zero whenever the traced function runs. Otherwise the exception type named by ``error`` is raised; ``{}`` in ``message`` is the first element that isn't zero, ``{index}`` its index.
    """

@typing.overload
def attribute(value: bool) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(value: int) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(value: float) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(arg0: str) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(value: list[bool]) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(value: list[int]) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(value: list[float]) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

@typing.overload
def attribute(arg0: collections.abc.Sequence[str]) -> str:
    """
    Returns a value as an attribute in MLIR syntax.
    """

def backend_of_processes(
    ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    host: torch._C._distributed_c10d.Backend,
    attendance: Attendance,
) -> torch._C._distributed_c10d.Backend:
    """
    Returns a process group backend whose collectives are programs of several processes. ``host`` serves the others.
    """

def begin_assertions() -> None:
    """
    Opens a scope of assertions: a part of a trace that computes its own, such as the body of a loop.
    """

def begin_optimizer_step(arg0: bool) -> None:
    """
    Marks the beginning of an optimizer's step. The argument says whether it is the first, which makes the optimizer's state.
    """

def begin_processes(
    store: torch.distributed.distributed_c10d.Store,
    rank: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
    place_on_host: collections.abc.Callable[[], tuple[int, int]],
) -> bool:
    """
    Starts this process's part of a client that spans several processes. Returns False, and starts nothing, if the plugin is not for GPUs.
    """

def begin_world(size: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Makes the first ``size`` devices a world: one process, in which each tensor has a value on each device (Note [World]).
    """

def borrow(arg0: torch.Tensor, arg1: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor | None:
    """
    Returns a pjrt tensor over the memory of a CPU tensor, or None if that would need a copy.
    """

def calls_libraries() -> bool:
    """
    Returns whether programs may call the CPU's libraries.
    """

def complete_backend_of_processes(
    backend: torch._C._distributed_c10d.Backend,
    groups: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]],
) -> None:
    """
    Sets all groups of the same kind, as lists of ranks. The backend's collectives need them.
    """

def complete_world_backend(
    backend: torch._C._distributed_c10d.Backend,
    groups: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]],
) -> None:
    """
    Sets all groups of the same kind, as lists of ranks. The backend's collectives need them.
    """

def composite_names() -> set[str]:
    """
    Returns the names of all composites that are ATen ops.
    """

def composites_switch() -> Composites:
    """
    Returns the set that was last given to set_composites_switch.
    """

def count_fallback(arg0: str) -> bool:
    """
    Counts a call of an op that ran on the host. Returns whether it was the first of this op.
    """

def current_device() -> int:
    """
    Returns the index of this thread's current device.
    """

def default_composites() -> Composites:
    """
    Returns the composites that a registered kernel can replace.
    """

def default_generator(arg0: typing.SupportsInt | typing.SupportsIndex) -> torch.Generator:
    """
    Returns the random generator of a device.
    """

def depending(result: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """
    Returns ``result``, made to depend on ``taken``, so that a program which returns it evaluates the assertions.
    """

def device_count() -> int:
    """
    Returns the number of devices that this process can use. Starts the client.
    """

def device_index(arg0: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    Returns the index. Raises RuntimeError if there is no such device.
    """

def device_properties(arg0: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]:
    """
    Returns the kind, the plugin's attributes and ``is_host_memory`` of a device. Raises IndexError if there is none.
    """

def digest(tensors: collections.abc.Sequence[torch.Tensor]) -> bytes:
    """
    Returns a digest of the bytes of CPU tensors.
    """

def drop_older_programs() -> None:
    """
    Drops the least recently used half of the compiled programs from memory, not from disk.
    """

def eager() -> bool:
    """
    Returns whether every call runs as soon as it is recorded.
    """

def end_assertions() -> None:
    """
    Closes the innermost scope of assertions.
    """

def end_optimizer_step(arg0: collections.abc.Sequence[torch.Tensor]) -> None:
    """
    Marks the end of an optimizer's step, and starts the work that its parameters depend on.
    """

def export_trace(trace: Trace, results: collections.abc.Sequence[torch.Tensor]) -> ExportedTrace:
    """
    Returns a trace with these results as programs in text form. Nothing is compiled.
    """

def finish() -> list[str]:
    """
    Waits for all running work. Returns the messages of runtime assertions that failed and were not raised.
    """

def follow_cpus_autocast(follow: bool) -> bool:
    """
    Sets whether autocast on "pjrt" casts the ops that it casts on the CPU, in this thread; returns whether it did.
    """

def forget_programs() -> None:
    """
    Drops all compiled programs that nothing uses from memory, and forgets which scalars varied.
    """

def graph(arg0: collections.abc.Sequence[torch.Tensor]) -> str:
    """
    Returns the pending graph of these tensors as text, one call a line.
    """

def groups_of(group: torch.distributed.distributed_c10d.ProcessGroup) -> tuple[list[int], int]:
    """
    Returns all groups of the same kind as a group of the world: their ranks in one list, and the size of each.
    """

def hand_over(
    inputs: collections.abc.Sequence[torch.Tensor],
    results: collections.abc.Sequence[torch.Tensor],
    key: typing.SupportsInt | typing.SupportsIndex | None = None,
) -> tuple[str, list[torch.Tensor]]:
    """
    Returns a trace as StableHLO: the text, and the constants that ``@main`` takes after the inputs. ``key``: the index of the input that is the random key.
    """

def handler_version(address: typing.SupportsInt | typing.SupportsIndex) -> tuple[int, int]:
    """
    Returns the version (major, minor) of XLA's FFI that a handler was compiled for; (0, 0) if it doesn't report one.
    """

def has_no_values(arg0: tuple[typing.Any, ...]) -> bool:
    """
    Returns whether a call has nothing to compute with: PyTorch is tracing, or an argument is a fake tensor or a symbolic integer.
    """

def has_one_value(tensor: torch.Tensor) -> bool:
    """
    Returns whether a tensor has the same values on all ranks of the world.
    """

def host_backend(
    host: torch._C._distributed_c10d.Backend, attendance: Attendance
) -> torch._C._distributed_c10d.Backend:
    """
    Returns a process group backend for pjrt tensors that uses ``host``, a backend of CPU tensors.
    """

def host_of(backend: torch._C._distributed_c10d.Backend) -> torch._C._distributed_c10d.Backend:
    """
    Returns the part of a backend for pjrt tensors that takes CPU tensors, too: itself if it is a host_backend.
    """

def host_view(arg0: torch.Tensor) -> torch.Tensor:
    """
    Returns a CPU tensor with the values of a pjrt tensor. It must not be written to: where device memory is the host's, it is the device's own memory.
    """

def if_else(
    predicate: torch.Tensor, operands: collections.abc.Sequence[torch.Tensor], on_true: Region, on_false: Region
) -> list[torch.Tensor]:
    """
    Records a branch. ``predicate`` is a boolean of one element. Both regions return the same dtypes and sizes. Returns the results of the chosen one.
    """

def in_forked_child() -> bool:
    """
    Returns whether this process was forked from one that used the device, and so can't use it.
    """

def init(arg0: str, arg1: str) -> None:
    """
    Starts the client of the plugin with this name and path. Raises RuntimeError if it can't be loaded or another one is running.
    """

def is_claimed(
    op: str,
    dtype: typing.Any,
    work: typing.SupportsInt | typing.SupportsIndex,
    rows: typing.SupportsInt | typing.SupportsIndex = 1,
    stride: typing.SupportsInt | typing.SupportsIndex = 1,
    size: typing.SupportsInt | typing.SupportsIndex = 1,
) -> bool:
    """
    Returns whether a library computes this op of so many multiplications. ``stride`` and ``size`` are those of the result's last dimension.
    """

def is_copied(arg0: torch.Tensor) -> bool:
    """
    Returns whether each call of a compiled function would copy this CPU tensor.
    """

def is_host_memory() -> bool:
    """
    Returns whether device memory is the host's memory. Starts the client.
    """

def is_initialized() -> bool:
    """
    Returns whether a client is running.
    """

def is_pending(arg0: torch.Tensor) -> bool:
    """
    Returns whether a pjrt tensor's value is recorded and not yet computed.
    """

def is_shared(arg0: torch.device) -> bool:
    """
    Returns whether this device of PyTorch, such as "cuda:0", is also a device of the plugin.
    """

def keep_accelerator() -> None:
    """
    Keeps PyTorch's accelerator, such as CUDA, as the one that autograd asks. Must be called before "pjrt" is registered.
    """

def longer(list: str, values: collections.abc.Sequence[str]) -> str:
    """
    Appends strings to a list of strings in MLIR syntax.
    """

def lstm_workspace_bytes(
    length: typing.SupportsInt | typing.SupportsIndex,
    batch: typing.SupportsInt | typing.SupportsIndex,
    features: typing.SupportsInt | typing.SupportsIndex,
    hidden: typing.SupportsInt | typing.SupportsIndex,
    dtype: torch.dtype,
) -> int:
    """
    Returns the size of what oneDNN keeps of an LSTM's layer for its backward.
    """

def make_composites(arg0: bool, arg1: collections.abc.Set[str], arg2: collections.abc.Mapping[str, str]) -> Composites:
    """
    Returns the set with these names (or all composites) and these names in programs; None for the empty set.
    """

def mark_read_only(arg0: typing.Any) -> None:
    """
    Sets the read-only flag of a versioned DLPack capsule. Raises RuntimeError for other capsules.
    """

def metrics() -> dict[str, typing.Any]:
    """
    Returns the counters that ``torch_pjrt.metrics()`` documents.
    """

def most_devices() -> int:
    """
    Returns the number of devices, or an upper bound of it while no client is running.
    """

def newest_node_id() -> int:
    """
    Returns the number of the newest node. Nodes are numbered in the order of recording.
    """

def node_id(arg0: torch.Tensor) -> int | None:
    """
    Returns the number of the node that computes a pjrt tensor; 0 if it was computed already; None if it is a placeholder or has no value.
    """

def per_rank(values: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> torch.Tensor:
    """
    Returns a 0-d int64 tensor that is ``values[rank]`` on each rank of the world.
    """

def placeholders_below(tensors: collections.abc.Sequence[torch.Tensor]) -> list[int]:
    """
    Returns the addresses of the placeholders that these tensors depend on.
    """

def platform_name() -> str:
    """
    Returns the plugin's platform name, such as "cpu" or "cuda". Starts the client.
    """

def platform_version() -> str:
    """
    Returns the plugin's version text. Starts the client.
    """

def plugin() -> tuple[str, str]:
    """
    Returns the plugin's name and path. Starts the client.
    """

def plugin_memory(arg0: typing.SupportsInt | typing.SupportsIndex) -> dict[str, int]:
    """
    Returns the plugin's own memory statistics of a device, in bytes unless the name says otherwise.
    """

def process() -> tuple[int, int] | None:
    """
    Returns the index of this process and the number of processes that share the client; None if it is this process's alone.
    """

def promised_equal(tensor: torch.Tensor) -> torch.Tensor:
    """
    Returns the same values, marked as equal on all ranks of the world. A read compares them, and raises RuntimeError if they differ.
    """

def register_handler(target: str, address: typing.SupportsInt | typing.SupportsIndex, place: str) -> None:
    """
    Registers a handler of XLA's FFI with the plugin, under the name ``target``. ``place`` says where it was found. Raises RuntimeError unless a kernel is being asked for its claim.
    """

def reset_metrics() -> None:
    """
    Sets every counter to zero.
    """

def rests_on(tensor: torch.Tensor, others: collections.abc.Sequence[torch.Tensor]) -> bool:
    """
    Returns whether ``tensor`` was computed from one of the others.
    """

def run_backward(
    engine: collections.abc.Callable[..., typing.Any], args: tuple[typing.Any, ...], how: dict[str, typing.Any]
) -> typing.Any:
    """
    Calls the autograd engine with ``args``, the roots first, and keyword arguments ``how`` (Note [Backward]).
    """

def seal() -> Seal | None:
    """
    Returns this thread's seal, or None.
    """

def set_accelerator_here(arg0: bool) -> bool:
    """
    Makes "pjrt" the accelerator in this thread, or undoes it. Returns the previous setting.
    """

def set_compile_policy(arg0: str) -> None:
    """
    Sets when graphs are compiled, by a value of ``TORCH_PJRT_COMPILE``. Raises RuntimeError for any other name.
    """

def set_composites_switch(asked: Composites) -> None:
    """
    Sets which composites are kept in programs that are recorded from now on.
    """

def set_device(arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Sets this thread's current device. A negative index changes nothing.
    """

def set_eager(arg0: bool) -> None:
    """
    Sets whether every call runs as soon as it is recorded.
    """

def set_foreign_trace(
    value_needed: collections.abc.Callable[[int, str], str],
    before_write: collections.abc.Callable[[torch.Tensor, str], None],
) -> None:
    """
    Sets the callbacks for torch code inside another framework's trace. ``value_needed(address, cause)`` returns the error to raise when a placeholder's value is read, or "". ``before_write(tensor, op)`` raises if the tensor may not be written.
    """

def set_interprets_growing(arg0: bool) -> None:
    """
    Sets whether ``first`` interprets graphs that differ from two earlier ones in sizes alone; the default is True.
    """

def set_location(arg0: str, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Overrides user_location() in this thread; an empty file ends that.
    """

def set_program_listener(arg0: collections.abc.Callable[[str, str], None]) -> None:
    """
    Sets the callback for each program that is about to be compiled. It takes the graph and the StableHLO text.
    """

def set_python_sources(
    plugins: collections.abc.Callable[[], list[tuple[str, str]]], decompose: collections.abc.Callable[..., typing.Any]
) -> None:
    """
    Sets the callbacks of the core: ``plugins()`` returns names and paths of installed plugins, ``decompose`` PyTorch's decomposition of an op.
    """

def set_run_listener(arg0: collections.abc.Callable[[str], None]) -> None:
    """
    Sets the callback for each program that is about to run. It takes the StableHLO text.
    """

def set_seal(seal: Seal | None) -> None:
    """
    Sets this thread's seal; None removes it.
    """

def set_strict(arg0: bool) -> None:
    """
    Sets whether host fallbacks raise.
    """

def set_tracing(arg0: bool) -> None:
    """
    Sets whether this thread traces a function.
    """

def set_truth_source(truth: collections.abc.Callable[[torch.Tensor], bool | None]) -> None:
    """
    Sets the callback for branches on traced tensors. It returns the side to take, or None to refuse.
    """

def snapshot(arg0: torch.Tensor) -> torch.Tensor | None:
    """
    Returns a tensor over the same memory, which keeps its values when the given one is written to. Returns None if the tensor doesn't own its memory or this PyTorch has no such hook.
    """

def stablehlo(
    tensors: collections.abc.Sequence[torch.Tensor], for_cpu: bool = False, knows_composites: bool = True
) -> str:
    """
    Returns the StableHLO module that computes these tensors. ``for_cpu``: with the lowerings specific to XLA:CPU. ``knows_composites``: composites are ``stablehlo.composite``; otherwise calls.
    """

def start_all(arg0: str) -> None:
    """
    Starts all pending work on every device. The cause is counted in ``metrics()["syncs_by_cause"]``.
    """

def start_log() -> None:
    """
    Starts the log that ``explain()`` reads.
    """

def stop_log() -> None:
    """
    Stops the log.
    """

def stop_other_threads() -> None:
    """
    Prepares for the end of the interpreter: other threads that return from the engine stop there.
    """

def strict() -> bool:
    """
    Returns whether host fallbacks raise.
    """

def sync(arg0: collections.abc.Sequence[torch.Tensor], arg1: str) -> None:
    """
    Starts the pending work that pjrt tensors depend on, without waiting. The cause is counted in ``metrics()["syncs_by_cause"]``.
    """

def take_assertions() -> torch.Tensor | None:
    """
    Returns a tensor that depends on every assertion of the scope, and clears them. Returns None if there are none.
    """

def take_log() -> list[dict[str, typing.Any]]:
    """
    Returns the log's entries as dictionaries, oldest first, and empties it.
    """

def tracing() -> bool:
    """
    Returns whether this thread traces a function. Then an op that would run on the host raises.
    """

def user_location() -> tuple[str, int]:
    """
    Returns the file and line of the user's code that is being executed; an empty file if there is none.
    """

def values_of_rank(tensor: torch.Tensor, rank: typing.SupportsInt | typing.SupportsIndex) -> torch.Tensor:
    """
    Returns a copy on the CPU of a tensor's values on one rank of the world.
    """

def wait(arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Waits for the work that was started on a device.
    """

def ways(tensors: collections.abc.Sequence[torch.Tensor]) -> list[tuple[str, str]]:
    """
    Returns the name of each pending call that these tensors depend on, and what executes it: a rule, a decomposition or a kernel.
    """

def while_loop(
    operands: collections.abc.Sequence[torch.Tensor],
    carried: typing.SupportsInt | typing.SupportsIndex,
    condition: Region,
    body: Region,
) -> list[torch.Tensor]:
    """
    Records a loop. The first ``carried`` operands change from iteration to iteration. ``condition`` returns a boolean of one element, ``body`` the next carried values. Returns their final values.
    """

def world_backend(
    ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
) -> torch._C._distributed_c10d.Backend:
    """
    Returns a process group backend for a group of ranks of the world.
    """

def world_size() -> int:
    """
    Returns the number of ranks of the world; 1 without one.
    """

def write_protected(arg0: torch.Tensor) -> torch.Tensor | None:
    """
    Returns a tensor over the same memory. A write to it copies the memory first and is counted in ``metrics()["copies_on_write"]``. Returns None if this PyTorch has no such hook.
    """
