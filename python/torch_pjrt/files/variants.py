"""One entry of a file: a function, recorded for each combination of its sizes."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torch_pjrt import _C
from torch_pjrt.capture.binding import bind, signature_of, signature_of_exported
from torch_pjrt.capture.capture import Recorded, StateMade, record
from torch_pjrt.capture.finding import Found, find
from torch_pjrt.capture.step import CompiledStep
from torch_pjrt.capture.substitution import Hyperparameter, varying
from torch_pjrt.errors import CaptureError
from torch_pjrt.files import archive, dynamic, parameters, portable, tree
from torch_pjrt.files.naming import HYPERPARAMETERS, RANDOM_STATE, Names, has_gaps, without_gaps
from torch_pjrt.files.safetensors import check_dtype, content, dtype_name
from torch_pjrt.kernels import libraries
from torch_pjrt.program.subclasses import is_compound, is_sparse
from torch_pjrt.program.tracing_scope import tracing

if TYPE_CHECKING:
    from torch_pjrt.files.exporting import Exported

Place = dict[str, Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments


@dataclass
class Text:
    text: str
    options: dict[str, Any]
    hints: list[str]
    file: str = ""  # without the extension


@dataclass
class Variant:
    sizes: dict[str, int]
    arguments: list[dict[str, Any]]
    results: list[dict[str, Any]]
    parameters: list[Place]
    outputs: list[Place]
    assertions: list[dict[str, Any]]
    texts: dict[str, Text]
    tree: tree.Json  # the structure of the results
    composites: list[str]
    state: list[str]  # names of the state that it uses

    def as_json(self, form: str) -> dict[str, Any]:
        ending = _ending(form)
        programs = {
            platform: {"file": text.file + ending, "options": text.options, "hints": text.hints}
            for platform, text in self.texts.items()
        }
        return {
            "sizes": self.sizes,
            "arguments": self.arguments,
            "results": self.results,
            "tree": self.tree,
            "parameters": self.parameters,
            "outputs": self.outputs,
            "requirements": self.assertions,
            "programs": programs,
            "composites": self.composites,
            "ops": portable.ops_in(self.texts["any"].text),
        }


@dataclass
class Entry:
    name: str
    parameters: list[tree.Json]
    arguments: tree.Json  # by parameter
    variants: list[Variant] = field(default_factory=list)

    def as_json(self, form: str) -> dict[str, Any]:
        return {
            "name": self.name,
            "tree": {
                "parameters": self.parameters,
                "arguments": self.arguments,
            },
            "variants": [variant.as_json(form) for variant in self.variants],
        }

    def members(self, form: str) -> dict[str, archive.Parts]:
        members: dict[str, archive.Parts] = {}
        for variant in self.variants:
            for text in variant.texts.values():
                name = text.file + _ending(form)
                if name not in members:
                    made = portable.artifact(text.text) if form == "portable" else text.text.encode()
                    members[name] = [made]
        return members


def _ending(form: str) -> str:
    return ".mlirbc" if form == "portable" else ".mlir"


@dataclass
class Given:
    """The function to export, prepared for recording."""

    fn: Callable[..., Any]
    found: Found
    signature: inspect.Signature
    inputs: list[Hyperparameter] = field(default_factory=list)
    trains: bool = False


def _given(fn: Any) -> Given:
    if isinstance(fn, CompiledStep):
        found = find(fn.fn, *fn.named)
        return Given(fn.fn, found, signature_of(fn.fn), varying(found, fn.inputs), trains=True)
    if isinstance(fn, torch.export.ExportedProgram):
        module = fn.module()
        return Given(module, find(module), signature_of_exported(fn, module))
    if hasattr(fn, "program") and hasattr(fn, "afresh"):
        raise TypeError("jit made this function: export the function that it was made of")
    if not callable(fn):
        raise TypeError(
            f"export takes a module, a function, a compiled step or an ExportedProgram, not {type(fn).__name__}"
        )
    return Given(fn, find(fn), signature_of(fn))


def call_of(example: Any, kwargs: Mapping[str, Any]) -> Call:
    if isinstance(example, dict):
        return (), {**example, **kwargs}
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), dict(kwargs)


def _as_tensor(value: Any) -> Any:
    """Returns NumPy arrays as tensors, and tensors as new objects without gaps or overlaps."""
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        value = torch.as_tensor(value)
    if not isinstance(value, torch.Tensor) or is_compound(value):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    return without_gaps(value) if has_gaps(value) else value


def record_entry(
    exported: Exported,
    name: str,
    fn: Any,
    call: Call,
    by_argument: dynamic.Dynamic,
    sizes: Mapping[str, Iterable[int]],
    freeze: bool,
) -> Entry:
    given = _given(fn)
    if freeze and given.trains:
        raise TypeError("freeze=True is for inference, and what compile_step made trains")
    with exported.names.dense_buffers(given.found.modules):
        return _recorded_entry(exported, name, fn, given, call, by_argument, sizes, freeze)


def _recorded_entry(
    exported: Exported,
    name: str,
    fn: Any,
    given: Given,
    call: Call,
    by_argument: dynamic.Dynamic,
    sizes: Mapping[str, Iterable[int]],
    freeze: bool,
) -> Entry:
    exported.names.learn(given.fn, given.found)
    call = tree.mapped(call, _as_tensor)
    bound = bind(given.signature, *call)
    if isinstance(fn, torch.export.ExportedProgram):
        call = bound.args, bound.kwargs
    tensors: list[tuple[str, torch.Tensor]] = []
    entry = Entry(name, *parameters.encode(bound, f"the arguments of '{name}'", tensors))
    for argument, tensor in tensors:
        if is_compound(tensor):
            kind = "sparse tensor" if is_sparse(tensor) else type(tensor).__name__
            raise TypeError(f"argument '{argument}' of '{name}' is a {kind}: give what it is made of")
        check_dtype(tensor.dtype, f"argument '{argument}' of '{name}'")
    examples = [id(tensor) for _, tensor in tensors]
    for chosen, shaped in dynamic.combinations(by_argument, sizes, tensors):
        recorded = given
        if freeze:
            frozen = exported.frozen.freeze(given.fn, *with_tensors(call, examples, shaped), exported.names)
            recorded = Given(frozen, find(frozen), given.signature)
        call_of = OfTensors(recorded.fn, recorded.found, call, examples, f"the results of '{name}'")
        variant = _record(exported, recorded, name, call_of, [each for each, _ in tensors], shaped)
        variant.sizes = chosen
        stem = f"programs/{name}" + "".join(f".{key}={size}" for key, size in chosen.items())
        _place_texts(variant, stem)
        entry.variants.append(variant)
    return entry


def _place_texts(variant: Variant, stem: str) -> None:
    """Assigns the texts to members; equal texts share one."""
    placed: dict[str, str] = {}
    for platform, text in variant.texts.items():
        text.file = placed.setdefault(text.text, stem if platform == "any" else f"{stem}.{platform}")


@dataclass
class Structure:
    """The structure of the results, and the names of the tensors in it."""

    form: tree.Json
    names: list[str]


@dataclass
class OfTensors:
    """A function of only the tensors in its arguments, which returns the tensors in its results, and their structure.

    Args:
        examples: the ids of the tensors in ``call``.
    """

    fn: Callable[..., Any]
    found: Found
    call: Call
    examples: list[int]
    what: str

    def __call__(self, *tensors: torch.Tensor) -> list[Any]:
        args, kwargs = with_tensors(self.call, self.examples, tensors)
        self.found.effects.give(self.fn, args, kwargs)
        found: list[tuple[str, torch.Tensor]] = []
        form = tree.encode(self.fn(*args, **kwargs), self.what, found)
        return [*(tensor for _, tensor in found), Structure(form, [name or "output" for name, _ in found])]


def with_tensors(call: Call, examples: list[int], tensors: Sequence[torch.Tensor]) -> Call:
    given = dict(zip(examples, tensors, strict=True))
    made: Call = tree.mapped(call, lambda each: given.get(id(each), each))
    return made


def _record(
    exported: Exported,
    given: Given,
    name: str,
    call: OfTensors,
    names: list[str],
    tensors: list[torch.Tensor],
) -> Variant:
    with torch.set_grad_enabled(given.trains), nullcontext() if given.trains else _exporting():
        try:
            recorded = record(call, tuple(tensors), {}, given.found, given.inputs, with_grads=given.trains)
        except StateMade:
            raise CaptureError(
                f"an optimizer of '{name}' has no state yet, which its first step makes: run the step once, then "
                "export it"
            ) from None
    if recorded.run.mode.reads_addresses and len(tensors) > 1:
        warnings.warn(
            f"'{name}' reads addresses of tensors (data_ptr, untyped_storage): in a file each argument is a tensor of "
            "its own, even if one is given for several. Compare the arguments outside",
            stacklevel=2,
        )
    try:
        return _variant(exported, recorded, given, name, names, tensors)
    finally:
        recorded.let_go()


@contextmanager
def _exporting() -> Iterator[None]:
    """Sets the flags of torch.compiler in the block, so that code doesn't read values, such as transformers' masks.
    Training steps run without it, because optimizers behave differently under the flags."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")
    before = [getattr(torch.compiler, flag, None) for flag in flags]
    try:
        for flag in flags:
            setattr(torch.compiler, flag, True)
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            setattr(torch.compiler, flag, value)


def _variant(
    exported: Exported, recorded: Recorded, given: Given, name: str, names: list[str], tensors: list[torch.Tensor]
) -> Variant:
    run, mode = recorded.run, recorded.run.mode
    if recorded.gradients:
        raise CaptureError(
            f"'{name}' leaves gradients for the next call (they add up, or belong to parameters that it doesn't "
            "update): call zero_grad() before backward(), and return those that are wanted (torch.autograd.grad)"
        )
    if run.templates is not None:
        raise TypeError(f"'{name}' returns a tensor subclass: return what it is made of")
    pieces = [_name_of(exported.names, recorded, given, piece) for piece in recorded.pieces]
    if twice := {piece for piece in pieces if pieces.count(piece) > 1}:
        raise CaptureError(
            f"'{name}' takes apart what goes on together in another entry, {', '.join(sorted(twice))}: export it alone"
        )
    for follower in mode.followers:
        if follower.leader in recorded.position:
            exported.names.follow(pieces[recorded.position[follower.leader]], follower.piece.real)
    *results, structure = run.leaves
    found = list(zip(structure.names, results, strict=True))
    for path, tensor in found:
        check_dtype(tensor.dtype, f"result '{path}' of '{name}'")
    asserting = _asserting(mode.asserted, [tensor for _, tensor in found], name)
    try:
        made = _C.export_trace(mode.trace, asserting)
    except NotImplementedError as error:
        raise CaptureError(f"'{name}' can't be a program in a file: {error}") from error
    constants = [_constant(exported.names, tensor) for tensor in made.constants]
    places: list[Place] = [{"argument": i} for i in range(len(names))] + [{"state": piece} for piece in pieces]
    parameters = [places[p] if p >= 0 else {"state": constants[-1 - p]} for p in made.parameters]
    outputs: list[Place] = [{"result": i} for i in range(len(found))] + [places[i] for i in made.updated]
    texts = {text.platform: text for text in made.texts}
    if texts["any"].draws:
        _add_random_state(exported.names)
        parameters.append({"state": RANDOM_STATE})
        outputs.append({"state": RANDOM_STATE})
    assertions = texts["any"].assertions
    if assertions:
        outputs.append({"requirements": True})
    exported.updated |= {place["state"] for place in outputs if "state" in place}
    for text in made.texts:
        for target in portable.kernels_in(text.text):
            exported.kernels[target] = libraries.by_target[target]
    variant = Variant(
        sizes={},
        arguments=[
            {**_form(each, tensor), "updated": i in made.updated}
            for i, (each, tensor) in enumerate(zip(names, tensors, strict=True))
        ],
        results=[_form(path, tensor) for path, tensor in found],
        parameters=parameters,
        outputs=outputs,
        assertions=[
            {"low": r.low, "high": r.high, "message": r.message, "op": r.op, "index_error": r.index_error}
            for r in assertions
        ],
        texts={p: Text(t.text, dict(sorted(t.options.items())), sorted(t.hints)) for p, t in texts.items()},
        tree=structure.form,
        composites=[f"{composite}: {by}, {n} times" for t in made.texts for composite, by, n in t.composites],
        state=sorted({place["state"] for place in (*parameters, *outputs) if "state" in place}),
    )
    _refuse_shared_memory(exported, variant.state)
    return variant


def _asserting(asserted: list[torch.Tensor], results: list[torch.Tensor], name: str) -> list[torch.Tensor]:
    """Returns the results, made dependent on all runtime assertions."""
    if asserted and not results:
        raise CaptureError(f"'{name}' checks values and returns nothing: return a tensor, with which errors are told")
    with tracing():
        return [_C.depending(results[0], asserted[0]), *results[1:]] if asserted else results


def _refuse_shared_memory(exported: Exported, state: list[str]) -> None:
    """Raises if updated state shares memory: each piece of state has its own memory in a program."""
    places = []
    for name in state:
        tensor = exported.names.tensors[name]
        begin = tensor.storage_offset() * tensor.itemsize
        places.append((tensor.untyped_storage()._cdata, begin, begin + tensor.nbytes, name))
    for (memory, _, end, name), (other_memory, begin, _, other) in itertools.pairwise(sorted(places)):
        if memory == other_memory and begin < end and not exported.updated.isdisjoint((name, other)):
            raise CaptureError(
                f"'{name}' and '{other}' share memory that the function updates, and a file has them apart: make the "
                "view inside the function, or a clone()"
            )


def _form(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
    }


def _name_of(names: Names, recorded: Recorded, given: Given, piece: Any) -> str:
    real: torch.Tensor = piece.real
    if real is recorded.run.numbers:
        names.parameters = [
            f"{names.optimizers[id(given.found.optimizers[each.optimizer])]}.param_groups.{each.group}.{each.key}"
            + ("" if each.element is None else f".{each.element}")
            for each in given.inputs
        ]
        name = HYPERPARAMETERS
        names.tensors.setdefault(name, real)
        return name
    if piece.of is not None:
        raise CaptureError(
            f"the function uses {piece.name} of the call before: call zero_grad(set_to_none=True) before backward()"
        )
    check_dtype(real.dtype, piece.name)
    if has_gaps(real):
        raise CaptureError(f"{piece.name} is a view with gaps or overlaps in its memory: make it contiguous()")
    known = names.names.get(id(real))
    return known if known is not None else names.add(real, "tensor")


def _constant(names: Names, tensor: torch.Tensor) -> str:
    """Adds data that the function made as a constant, and returns its name. Equal constants are stored once."""
    real = tensor.cpu()
    check_dtype(real.dtype, "a constant")
    key = f"constant.{dtype_name(real.dtype)}{list(real.shape)}.{archive.crc_of([content(real)]):08x}"
    for name, other in names.tensors.items():
        if name.startswith(key) and torch.equal(other, real):
            return name
    return names.add(real, key)


def _add_random_state(names: Names) -> None:
    if RANDOM_STATE not in names.tensors:
        names.add(torch.zeros(2, dtype=torch.int64), RANDOM_STATE)
