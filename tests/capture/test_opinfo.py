"""OpInfo entries through jit and through files, forward, in place and backward, are CPU eager: values, dtypes, shapes,
strides, and the memory that results share with arguments."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

import torch_pjrt
from tests.ops.opinfo import (
    GRADIENT_TOLERANCE,
    OF_ANY_SIGN,
    OPS,
    UNSUPPORTED,
    WITHOUT_GAPS,
    assert_same,
    predictable,
    samples,
    tensors,
    usual_dtype,
)
from tests.ops.test_strides import DIFFERENT
from torch_pjrt.errors import CaptureError

COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "1"))


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
        if result._is_zerotensor():  # eager's without memory
            found.append((i, None, 0))
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
    """Asserts eager's results, and eager's changes of arguments. Raises what the entrance refuses."""
    given, examples = case.values(), case.values()
    beside = case.values() if entrance == "jit" else [dense(value) for value in case.values()]
    with torch.no_grad():
        expected = case(*beside)
    call = ENTRANCES[entrance](case, examples, folder)
    assert_same(examples, case.values())  # captures write into no example
    result = call(*given)
    exact = predictable(case.op, case.sample) and (entrance == "jit" or name not in OF_ANY_SIGN)
    strides = all(t.layout == torch.strided and t.numel() for t in tensors(expected)) and name not in DIFFERENT
    assert_same(result, expected, exact, strides, GRADIENT_TOLERANCE.get(name) if case.grads else None)
    assert_same(given, beside, exact)
    if entrance == "jit":
        assert shared(result, given) == shared(expected, beside)


def cases(name: str, count: int) -> Iterator[Case]:
    """Yields an op's samples, the last one with gaps in its memory too: forward, in place, and their gradients."""
    op = OPS[name]
    dtype = usual_dtype(op)
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    given = list(samples(op, dtype, count, requires_grad=differentiable))
    for sample in given:
        yield Case(op, sample)
        if op.inplace_variant and not sample.broadcasts_input:
            yield Case(op, sample, op.inplace_variant)
        if differentiable:
            yield Case(op, sample, grads=True)
    if given and name not in WITHOUT_GAPS:
        yield Case(op, given[-1].noncontiguous())


DATA = "its result's shape depends on data"
READS = "needs the value|a tensor's value is needed|a number that only a run has"
BESIDE = "reaches memory beside the elements"
SHAPE = "gives argument 0 other memory or another shape"
KERNEL = "is a kernel of the CPU's here"
SPARSE = "is a sparse tensor: give what it is made of"
# Ops of which a call is refused, in both entrances and by files alone, with the words. A listed op that works fails.
REFUSED: dict[str, str] = {
    **dict.fromkeys(("argwhere", "bincount", "masked_select", "nonzero", "to_sparse", "unique", "unique_consecutive"),
                    DATA),
    **dict.fromkeys(("allclose", "equal", "item", "nn.functional.one_hot", "tensor_split"), READS),
    **dict.fromkeys(("as_strided", "as_strided.partial_views", "as_strided_copy", "as_strided_scatter"), BESIDE),
    **dict.fromkeys(("resize_", "squeeze", "t", "transpose", "unsqueeze"), SHAPE),
}  # fmt: skip
REFUSED_BY_FILES: dict[str, str] = {
    **dict.fromkeys(("hash_tensor", "linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex",
                     "linalg.ldl_solve"), KERNEL),
    **dict.fromkeys(("sparse.sampled_addmm", "sparse.mm.reduce"), SPARSE),
    "cdouble": "is complex128, which a program's file has no form for",
}  # fmt: skip


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", [name for name in OPS if name not in UNSUPPORTED])
@pytest.mark.sampled(20)
def test_programs_are_eager(name: str, entrance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_PJRT_XLA_OPTIONS", "xla_backend_optimization_level=0")
    # Samples of random ops seed a generator in the function.
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", lambda op, *a, **k: op(*a, **k))
    words = REFUSED.get(name) or (REFUSED_BY_FILES.get(name) if entrance == "export" else None)
    refused = []
    for case in cases(name, COUNT):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with torch.no_grad():
                    case(*case.values())
            except (RuntimeError, ValueError):
                continue  # of no such sample on the CPU
            try:
                check(name, entrance, case, tmp_path)
            except (CaptureError, TypeError) as error:
                if not words or not re.search(words, str(error)):
                    raise
                refused.append(error)
    assert not words or refused, f"{name} works: take it out of the list"


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


def test_numbers_and_their_exponents(tmp_path: Path) -> None:
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -3e-39, 5.0, -0.5, 3e38, 6e-8])
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        given = x.to(dtype)
        assert_same(by_file(torch.frexp, [given], tmp_path)(given), torch.frexp(given), True, True)


SYSTEMS = {"tall": (5, 3), "wide": (3, 5), "square": (2, 4, 4), "of rank 1": (5, 4)}


@pytest.mark.parametrize("shape", SYSTEMS)
def test_least_squares_in_files(shape: str, tmp_path: Path) -> None:
    a = torch.randn(SYSTEMS[shape], dtype=torch.float64)
    if shape == "of rank 1":
        a = a[:, :1] @ a[:1]
    b = torch.randn(*a.shape[:-1], 2, dtype=torch.float64)
    for driver in ("gelsy",) if shape == "of rank 1" else ("gelsy", "gels"):

        def solve(a: torch.Tensor, b: torch.Tensor, driver: str = driver) -> Any:
            return torch.linalg.lstsq(a, b, driver=driver)

        assert_same(by_file(solve, [a, b], tmp_path)(a, b), solve(a, b))


def alignment(how: str, zero_infinity: bool, lengths: list[list[int]] | None = None) -> Callable[..., Any]:
    """The loss and its gradient, with lengths that are lists or the last arguments."""

    def step(log_probs: torch.Tensor, targets: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            x = log_probs.detach().requires_grad_()
            loss = F.ctc_loss(x, targets, *(lengths or tensors), reduction=how, zero_infinity=zero_infinity)
            return [loss.detach(), torch.autograd.grad((loss * 0.5).sum(), x)[0]]

    return step


@pytest.mark.parametrize("form", ["rows", "one after the other"])
@pytest.mark.parametrize("as_tensors", [False, True])
def test_alignments(as_tensors: bool, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_PJRT_XLA_OPTIONS", "xla_backend_optimization_level=0")
    targets = torch.tensor([[1, 2, 3], [1, 1, 0], [0, 0, 0]] if form == "rows" else [1, 2, 3, 1, 1])
    lengths = [[6, 2, 0], [3, 2, 0]]  # the second sequence has no path
    given = [torch.randn(6, 3, 4).log_softmax(2), targets]
    given[0][1, 0, 3] = given[0][0, 0, 1] = -torch.inf  # where PyTorch's gradient is NaN
    for how, zero_infinity in (("none", True), ("mean", False)):
        step = alignment(how, zero_infinity, None if as_tensors else lengths)
        args = [*given, *map(torch.tensor, lengths)] if as_tensors else given
        for entrance in ENTRANCES if how == "mean" else ("export",):
            assert_same(ENTRANCES[entrance](step, args, tmp_path)(*args), step(*args), strides=True)


def test_wrong_lengths_of_alignments() -> None:
    given = [torch.randn(6, 2, 4).log_softmax(2), torch.ones(5, dtype=torch.int64)]
    program = torch_pjrt.jit(F.ctc_loss, (*given, torch.tensor([6, 4]), torch.tensor([3, 2])))
    for inputs, targets, words in (
        ([7, 4], [3, 2], "input_lengths to be at least 0 and at most 6"),
        ([6, -1], [3, 2], "input_lengths to be at least 0 and at most 6"),
        ([6, 4], [3, 1], "target_lengths to add up to the size of targets"),
    ):
        with pytest.raises(RuntimeError, match=words):
            program(*given, torch.tensor(inputs), torch.tensor(targets))
