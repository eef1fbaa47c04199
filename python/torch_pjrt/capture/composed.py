"""PyTorch's functions that read a value on their way, and what they are in a program, where there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.scalars import Number
from torch_pjrt.capture.stand_ins import known_value
from torch_pjrt.capture.wrapped import is_wrapped
from torch_pjrt.errors import CaptureError, ValueNeeded
from torch_pjrt.program.effects import has_effects, is_custom, is_of_all_processes
from torch_pjrt.program.placeholders import on_device
from torch_pjrt.program.subclasses import is_compound

MOST_TRIED = 1 << 14  # elements of arguments with which a kernel is tried


class CumulativeMomentum(Number):
    """The momentum of a batch norm that averages over all batches: one over the number of batches so far."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.value, self.pin = module, None, None

    @property
    def tensor(self) -> Tensor:
        count: Any = self.module.num_batches_tracked
        return 1 / count.double()


@contextmanager
def cumulative_momenta(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """``BatchNorm(momentum=None)`` reads the number of batches. In this scope it has a momentum that is computed."""
    found = [
        each
        for each in modules
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)
        and not isinstance(each, torch.nn.SyncBatchNorm)
        and each.momentum is None
        and each.num_batches_tracked is not None
    ]
    for module in found:
        module.momentum = CumulativeMomentum(module)
    try:
        yield
    finally:
        for module in found:
            module.momentum = None


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    """With a momentum that is a Number."""
    if not isinstance(momentum, Number):
        return NotImplemented
    if not training or running_mean is None or running_var is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, 0.0, eps)
    batch = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = F.batch_norm(input, *batch, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        for running, now in zip((running_mean, running_var), batch, strict=True):
            new, old = momentum.tensor.to(running.dtype), (1 - momentum.tensor).to(running.dtype)
            running.copy_(now * new + running * old)
    return result


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    """With weights, whose signs and sum PyTorch reads to check them."""
    if fweights is None and aweights is None:
        return NotImplemented
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alike = [None if x is None else torch.ones(x.shape, dtype=x.dtype) for x in (input, fweights, aweights)]
        torch.cov(alike[0], fweights=alike[1], aweights=alike[2])  # raises for what is wrong beside values
    weights: Any = 1
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            _C.assert_zero(given < 0, "RuntimeError", f"cov(): {name} cannot be negative")
            weights = given * weights
    total = weights.sum()
    _C.assert_zero(total == 0, "RuntimeError", "cov(): weights sum to zero, can't be normalized")
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    centered = rows - ((rows * weights).sum(1) / total).unsqueeze(1)
    norm = total - correction
    if aweights is not None and correction != 0:
        norm = total - correction * (weights * aweights).sum() / total
    products = centered @ (centered * weights).mH
    return (products / norm.clamp_min(0)).squeeze()


def tensor_split(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """At places that are a tensor, which PyTorch takes on the CPU only."""
    key = "tensor_indices_or_sections"
    places = args[0] if args else kwargs.get(key)
    if not isinstance(places, Tensor):
        return NotImplemented
    known = known_value(places)
    if known is None:
        raise ValueNeeded(
            "tensor_split needs the values of the tensor of sections or indices that it is given, and only a run of "
            "the program has them: give it numbers (indices.tolist(), outside of the captured function)"
        )
    return torch.tensor_split(input, known, *args[1:], **{k: v for k, v in kwargs.items() if k != key})


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """PyTorch selects from a mesh by a mask, although the places depend on the length only."""
    if input.dim() != 1 or r <= 0:
        return NotImplemented
    return input[on_device(torch.combinations(torch.arange(len(input)), r, with_replacement))]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Any:
    """With lengths that are tensors, which PyTorch reads on the CPU. ``reduction``: a name, or ``at::Reduction``."""
    if not (isinstance(input_lengths, Tensor) and isinstance(target_lengths, Tensor)):
        return NotImplemented
    input_lengths, target_lengths = input_lengths.reshape(-1), target_lengths.reshape(-1)
    some = [targets.numel() if targets.dim() == 1 else 0, *[0] * (target_lengths.numel() - 1)]
    check_beside_values(torch.ctc_loss, (log_probs, targets, [0] * input_lengths.numel(), some, blank), {})
    for name, lengths, most in (
        ("input", input_lengths, len(log_probs)),
        ("target", target_lengths, targets.shape[-1]),
    ):
        wrong = (lengths < 0) | (lengths > most)
        _C.assert_zero(
            wrong.any(), "RuntimeError", f"ctc_loss: Expected {name}_lengths to be at least 0 and at most {most}"
        )
    if targets.dim() == 1:
        differs = target_lengths.sum() != targets.numel()
        _C.assert_zero(differs, "RuntimeError", "ctc_loss: Expected target_lengths to add up to the size of targets")
    batch = log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1)
    loss = torch._ctc_loss(batch, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = torch.where(loss == torch.inf, 0, loss)
    if reduction in ("mean", 1):
        return (loss / target_lengths.to(loss.dtype).clamp_min(1)).mean()
    if reduction in ("sum", 2):
        return loss.sum()
    return loss if log_probs.dim() == 3 else loss.squeeze(0)


def sparse_coo_tensor(indices: Any, values: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Remembers what a matrix with learned values is made of: PyTorch's gradient of its products orders the elements,
    whose number then depends on data."""
    made = torch.sparse_coo_tensor(indices, values, *args, **kwargs)
    are_tensors = isinstance(indices, Tensor) and isinstance(values, Tensor)
    if are_tensors and made.dim() == 2 and made.dense_dim() == 0 and made.requires_grad and made.dtype == values.dtype:
        vars(made)["made_of"] = indices, values, made._version
    return made


def sparse_product(matrix: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
    """The product of such a matrix, by its elements."""
    indices, values, version = getattr(matrix, "made_of", (None, None, None))
    is_plain = isinstance(other, Tensor) and other.layout == torch.strided and other.dim() == 2
    if indices is None or values is None or matrix._version != version or args or kwargs or not is_plain:
        return NotImplemented
    if matrix.shape[1] != other.shape[0] or values.dtype != other.dtype:
        return NotImplemented
    products = values.unsqueeze(1) * other.index_select(0, indices[1])
    return products.new_zeros(matrix.shape[0], other.shape[1]).index_add(0, indices[0], products)


def of_known_values(func: Any, args: Any, kwargs: Any) -> Any:
    """A function whose result's shape depends on data that is the same in each call: ``x[torch.arange(4) > 1]``.
    NotImplemented where it isn't."""
    found = []

    def value(given: Any) -> Any:
        if isinstance(given, list) and given and all(isinstance(each, bool) for each in given):
            known: Tensor | None = torch.tensor(given)  # a mask
        else:
            known = known_value(given) if isinstance(given, Tensor) and not given.requires_grad else None
        if known is None:
            return given
        found.append(known)
        return known

    if func is Tensor.__getitem__:
        args = (args[0], tuple(places(args[1], value)))
    elif not getattr(func, "__name__", "_").endswith("_") and "out" not in kwargs:  # which write to what they are given
        args, kwargs = pytree.tree_map(value, (args, kwargs))
    if not found:
        return NotImplemented
    try:
        return on_device(CHOOSING.get(func, func)(*args, **kwargs))
    except (NotImplementedError, RuntimeError):
        return NotImplemented


def check_beside_values(func: Any, args: Any, kwargs: Any) -> None:
    """Raises the error that PyTorch's kernel has for tensors of these shapes and dtypes, whatever their values."""
    given = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if sum(each.numel() for each in given) > MOST_TRIED or any(each.layout != torch.strided for each in given):
        return
    error = _error_of(func, args, kwargs, torch.ones)
    if error is None or type(error) not in (RuntimeError, ValueError, TypeError):  # others may be of the ones
        return
    if repr(error) == repr(_error_of(func, args, kwargs, torch.zeros)):
        raise error


def _error_of(func: Any, args: Any, kwargs: Any, fill: Callable[..., Tensor]) -> Exception | None:
    args, kwargs = pytree.tree_map_only(Tensor, lambda x: fill(x.shape, dtype=x.dtype), (args, kwargs))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            func(*args, **kwargs)
    except Exception as error:
        return error
    return None


def places(index: Any, value: Callable[[Any], Any]) -> Iterator[Any]:
    """The elements of an index, where a mask with a value stands for the places that it chooses."""
    for part in index if isinstance(index, tuple) else (index,):
        now = value(part)
        is_mask = isinstance(now, Tensor) and now.device.type == "cpu" and now.dtype == torch.bool and now.dim() > 0
        yield from now.nonzero(as_tuple=True) if is_mask else (now,)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """With a mask on the CPU, wherever the input is."""
    shape = torch.broadcast_shapes(input.shape, mask.shape)
    return input.expand(shape)[mask.expand(shape).nonzero(as_tuple=True)]


def repeat_interleave(
    input: Tensor, repeats: Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """With counts on the CPU, wherever the input is."""
    if repeats is None:
        return torch.repeat_interleave(input, output_size=output_size)
    input, dim = (input.flatten(), 0) if dim is None else (input, dim)
    places = torch.repeat_interleave(repeats.expand(input.shape[dim]), output_size=output_size)
    return input.index_select(dim, on_device(places))


def check_call(func: Any, kwargs: dict[str, Any]) -> None:
    """Raises CaptureError for calls that a program can't represent."""
    overload = getattr(func, func.overloads()[0]) if isinstance(func, torch._ops.OpOverloadPacket) else func
    if has_effects(overload) and not is_custom(overload) and not is_of_all_processes(overload):
        raise CaptureError(
            f"{overload} has effects beside its results, which would happen once, at the capture: do it outside, or "
            "compile the function with torch.compile(backend='pjrt'), which is cut around such calls"
        )
    if kwargs.get("generator") is not None:
        raise CaptureError(
            f"{func.__name__} is given a generator, and a program draws from the default generator of its device: "
            "leave it out (torch.manual_seed, called outside of the captured function, seeds the default one), or draw "
            "outside and pass the tensor"
        )
    if func in (F.embedding, F.embedding_bag) and kwargs.get("max_norm") is not None:
        raise CaptureError(
            f"{func.__name__} with max_norm changes the rows of its weight that it reads, which can't be part of a "
            "program: leave max_norm out, and rescale the weight before, in the function or outside of it (with "
            "torch.no_grad(): weight.copy_(weight.renorm(2, 0, max_norm)))"
        )


INDICES = (torch.int8, torch.int16, torch.int32, torch.int64)
UNINDEXED = (int, slice, type(None), type(...))  # parts of an index beside tensors


@dataclass
class Element:
    """A slice of size 1 of a tensor, at a place that a tensor gives: a copy, with the versions of both at which they
    were equal."""

    of: Tensor
    dim: int
    place: Tensor
    copy: Tensor
    versions: tuple[int, int] = (0, 0)

    def settle(self) -> None:
        self.versions = self.of._version, self.copy._version


class Elements:
    """``x[i]`` and ``x[i] = value`` with integer tensors without dimensions.

    In eager ``x[i]`` is a view at the place that PyTorch reads from ``i``. A program has no views at places that depend
    on data: the element is a copy that is read anew before a function takes it if ``x`` has changed, and written back
    after a function has changed it.
    """

    def __init__(self) -> None:
        self.known: dict[int, Element] = {}  # by the addresses of copies
        self.taken: list[Element] = []  # by the function that is called now

    def find(self, tensor: Tensor) -> Element | None:
        if not self.known or tensor.layout != torch.strided or is_wrapped(tensor):
            return None
        return self.known.get(tensor.untyped_storage().data_ptr())

    def read(self, tensor: Tensor) -> None:
        """Updates the copy that a tensor is a view of, if it is."""
        if (each := self.find(tensor)) is None:
            return
        self.read(each.of)
        self.taken.append(each)
        if each.of._version != each.versions[0]:
            each.copy.copy_(each.of.index_select(each.dim, each.place))
            each.settle()

    def write(self) -> None:
        """Writes back what a function has changed of the copies that it took."""
        while self.taken:
            each = self.taken.pop()
            if each.copy._version != each.versions[1]:
                each.of.index_copy_(each.dim, each.place, each.copy)
                each.settle()

    def at(self, x: Tensor, index: Any, *value: Any) -> Any:
        """The element, or None if a value is given for it; NotImplemented for an index of another kind."""
        parts = list(index) if isinstance(index, tuple) else [index]
        are_plain = all(isinstance(part, UNINDEXED) or _is_plain(part) for part in parts)
        if not are_plain or not any(map(_is_place, parts)) or not _is_plain(x) or x.is_inference():
            return NotImplemented
        sizes = [_dims(part) for part in parts]
        rest = x.dim() - sum(sizes)
        if rest < 0:
            return NotImplemented
        dim = 0
        for i, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            if _is_place(part) and (known := known_value(part)) is not None:
                parts[i] = int(known)
            elif _is_place(part):
                x, parts[i] = self.slice(x, dim, part), 0
            dim += rest if part is ... else size
        if not value:
            return x[tuple(parts)]
        x[tuple(parts)] = value[0]
        return None

    def slice(self, x: Tensor, dim: int, place: Tensor) -> Tensor:
        place = place.detach().long().reshape(1)
        place = torch.where(place < 0, place + x.shape[dim], place)
        each = Element(x, dim, place, x.index_select(dim, place))
        each.settle()
        self.known[each.copy.untyped_storage().data_ptr()] = each
        self.taken.append(each)
        return each.copy


def _is_plain(part: Any) -> bool:
    return isinstance(part, Tensor) and not is_compound(part) and not is_wrapped(part) and part.layout == torch.strided


def _is_place(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dim() == 0 and part.dtype in INDICES


def _dims(part: Any) -> int:
    """How many dimensions a part of an index takes."""
    if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return 0 if part is None or part is ... or isinstance(part, bool) else 1


# Functions that choose elements of their first argument, as they are if what they choose by has a value.
CHOOSING: dict[Any, Callable[..., Any]] = {
    torch.masked_select: masked_select,
    Tensor.masked_select: masked_select,
    torch.repeat_interleave: repeat_interleave,
    Tensor.repeat_interleave: repeat_interleave,
}
COMPOSED: dict[Any, Callable[..., Any]] = {
    F.batch_norm: batch_norm,
    torch.combinations: combinations,
    torch.cov: cov,
    Tensor.cov: cov,
    torch.ctc_loss: ctc_loss,
    F.ctc_loss: ctc_loss,
    torch.sparse_coo_tensor: sparse_coo_tensor,
    **dict.fromkeys(
        (torch.sparse.mm, torch.mm, torch.matmul, Tensor.mm, Tensor.matmul, Tensor.__matmul__), sparse_product
    ),
    torch.tensor_split: tensor_split,
    Tensor.tensor_split: tensor_split,
}
