"""OpInfo entries through jit and through files, forward and backward, against CPU eager: values, dtypes, shapes,
strides, and the memory that results share with arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torch_pjrt
from tests.ops.opinfo import GRADIENT_TOLERANCE, assert_same, predictable, tensors


class Case:
    """A sample as a function of its tensors, which returns the results or, with ``grads``, their gradients."""

    def __init__(self, op: Any, sample: Any, function: Any = None, grads: bool = False) -> None:
        self.op, self.sample, self.function, self.grads = op, sample, function or op.op, grads
        self.leaves, self.tree = pytree.tree_flatten((sample.input, tuple(sample.args), sample.kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.moving = [at for at, i in enumerate(self.places) if self.leaves[i].requires_grad]

    def values(self) -> list[torch.Tensor]:
        return [copied(self.leaves[i]) for i in self.places]

    def __call__(self, *values: torch.Tensor) -> Any:
        if not self.grads:
            return self.results(values)
        with torch.enable_grad():
            own = [v.detach().requires_grad_(at in self.moving) for at, v in enumerate(values)]
            results = [t for t in tensors(self.sample.output_process_fn_grad(self.results(own))) if t.requires_grad]
            if not results or not self.moving:
                return []
            weights = [
                torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape).to(t.dtype) for t in results
            ]
            return torch.autograd.grad(results, [own[at] for at in self.moving], weights, allow_unused=True)

    def results(self, values: Any) -> Any:
        leaves = list(self.leaves)
        for i, value in zip(self.places, values, strict=True):
            leaves[i] = value
        input, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.function(input, *args, **kwargs)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with the strides, offset and memory of a tensor."""
    plain = tensor.detach()
    if plain.layout != torch.strided:
        return plain.clone()
    if plain.is_conj() or plain.is_neg():
        return plain.resolve_conj().resolve_neg()
    whole = plain.untyped_storage().nbytes() // plain.itemsize
    return plain.as_strided((whole,), (1,), 0).clone().as_strided(plain.shape, plain.stride(), plain.storage_offset())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the argument that a file's program is made for."""
    is_dense = tensor.layout != torch.strided or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    return tensor if is_dense else tensor.contiguous()


def shared(results: Any, values: list[torch.Tensor]) -> list[Any]:
    """Returns of each result the arguments and earlier results whose memory it has, with its offset there."""
    found = []
    places = [(f"argument {i}", v) for i, v in enumerate(values) if v.layout == torch.strided and v.numel()]
    for i, result in enumerate(tensors(results)):
        if result.layout != torch.strided or not result.numel():
            continue
        pointer = result.untyped_storage().data_ptr()
        owner = next((name for name, v in places if v.untyped_storage().data_ptr() == pointer), None)
        found.append((i, owner, result.storage_offset() if owner else 0))
        if owner is None:
            places.append((f"result {i}", result))
    return found


def by_jit(case: Case, values: list[torch.Tensor], folder: Path) -> Callable[..., Any]:
    return torch_pjrt.jit(case, values)


def by_file(case: Case, values: list[torch.Tensor], folder: Path) -> Callable[..., Any]:
    torch_pjrt.export(case, tuple(values)).save(folder / "op.pjrt", form="text")
    return torch_pjrt.load(folder / "op.pjrt")


ENTRANCES = {"jit": by_jit, "export": by_file}


def check(name: str, entrance: str, case: Case, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, examples = case.values(), case.values()
        beside = case.values() if entrance == "jit" else [dense(value) for value in case.values()]
        with torch.no_grad():
            expected = case(*beside)
        call = ENTRANCES[entrance](case, examples, folder)
        assert_same(examples, case.values(), strides=True)  # captures write into no example
        result = call(*given)
    exact = predictable(case.op, case.sample)
    tolerance = GRADIENT_TOLERANCE.get(name) if case.grads else None
    assert type(result) is type(expected) or entrance == "jit", f"{type(result)}, in eager {type(expected)}"
    assert_same(result, expected, values=exact, strides=True, tolerance=tolerance)
    assert_same(given, beside, values=exact)
    if entrance == "jit":
        assert shared(result, given) == shared(expected, beside), (
            f"memory {shared(result, given)}, in eager {shared(expected, beside)}"
        )


VIEWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.dtype]] = {
    "view_as_real": (torch.view_as_real, torch.complex64),
    "imag": (lambda x: x.imag, torch.complex64),
    "view_as_complex": (lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2))), torch.float32),
    "a smaller dtype": (lambda x: x.view(torch.int16)[1:], torch.float32),
    "a larger dtype": (lambda x: x.view(torch.float64), torch.float32),
}


@pytest.mark.parametrize("how", ["jit", "compile_step", "torch.compile"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_another_dtype(view: str, how: str) -> None:
    """An argument may begin inside its memory, at a number of its own elements."""
    fn, dtype = VIEWS[view]
    made = torch_pjrt.jit(fn, (torch.zeros(4, 6, dtype=dtype),)) if how == "jit" else torch_pjrt.compile_step(fn)
    if how == "torch.compile":
        made = torch.compile(fn, backend="pjrt")
    for x in (torch.randn(4, 6, dtype=dtype), torch.randn(7, 6, dtype=dtype)[3:]):
        got, expected = made(x), fn(x)
        assert_same(got, expected, strides=True)
        assert shared(got, [x]) == shared(expected, [x])
    if view in ("view_as_complex", "a larger dtype"):
        with pytest.raises(RuntimeError, match="must be divisible by 2"):
            made(torch.randn(25)[1:].view(4, 6))


GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda x: x.max(),
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "prod": lambda x: x.prod(),
    "prod of rows": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(0),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_gradients_whose_formula_may_read(entrance: str, tmp_path: Path) -> None:
    """PyTorch looks at the values, for NaN and zeros, where nothing traces."""

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return [torch.autograd.grad(f(leaf).sum(), leaf)[0] for f in GRADIENTS.values()]

    x = torch.tensor([[3.0, 0.0, 2.0], [3.0, 1.0, -1.0]])
    made = ENTRANCES[entrance](step, [x], tmp_path)
    for each in (x, x + 0.5):
        assert_same(made(each), step(each))


def test_combinations_depend_on_no_value(tmp_path: Path) -> None:
    x = torch.randn(4)
    for f in (torch.combinations, lambda x: torch.combinations(x, 3, with_replacement=True)):
        for make in ENTRANCES.values():
            assert_same(make(f, [x], tmp_path)(x), f(x), strides=True)
