"""OpInfo entries as JAX functions against torch on the CPU: values, gradients, and both of a batch under vmap.

The suite takes a sample of the entries; TORCH_PJRT_TEST_JAX=1 takes all, in more dtypes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.ops.opinfo import (
    ARGUMENTS_ON_THE_CPU,
    BY_ITS_KERNEL,
    DEVICE,
    GRADIENT_TOLERANCE,
    OPS,
    READS_ITS_SIZE,
    UNSUPPORTED,
    assert_same,
    predictable,
    samples,
    tensors,
    usual_dtype,
)
from torch_pjrt.errors import CaptureError
from torch_pjrt.jax import _compat, arrays, as_jax

EVERYTHING = "TORCH_PJRT_TEST_JAX" in os.environ
DTYPES = (None, torch.complex64, torch.int64) if EVERYTHING else (None,)
COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "1"))


# Entries that can't be programs, with the reason.
REFUSED: dict[str, str] = {
    **dict.fromkeys(("allclose", "equal", "corrcoef", "cov", "istft", "linspace.tensor_overload",
                     "logspace.tensor_overload", "nn.functional.gaussian_nll_loss", "nn.functional.one_hot"),
                    "PyTorch reads a value"),
    "logcumsumexp": "of complex numbers; others are swept in tests/ops, too",
    **dict.fromkeys(("index_reduce.prod", "scatter_reduce.prod"), "their gradient reads a value"),
}  # fmt: skip
# Entries that as_jax doesn't apply to.
LEFT_OUT: dict[str, str] = {
    "broadcast_shapes": "of no tensors",
    "nn.functional.linear_cross_entropy.chunked_none": "its backward writes with out=, which can't be differentiated",
    "tensor_split": "takes a tensor that is on the CPU",
    "nn.functional.silu.complex": "PyTorch has no derivative for complex results",
    **dict.fromkeys(("torch._scaled_mm", "torch._scaled_mm_v2"), "wants a transposed operand; arrays are contiguous"),
    **dict.fromkeys(("resize_", "resize_as_"), "of no tensor that requires grad"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
                     "nn.functional.instance_norm", "nn.functional.soft_margin_loss", "nn.functional.batch_norm"),
                    "PyTorch differentiates them only where some arguments are detached; tests/jax/test_errors.py"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def with_64_bits() -> Iterator[None]:
    with _compat.x64():
        yield
    if EVERYTHING:
        jax.clear_caches()


class Case:
    """A sample as a function of its tensors."""

    def __init__(self, op: Any, sample: Any, name: str) -> None:
        kwargs = {k: (DEVICE if k == "device" else v) for k, v in sample.kwargs.items()}
        self.op, self.sample = op, sample
        given = sample.input if name in ARGUMENTS_ON_THE_CPU else (sample.input, sample.args)
        leaves, self.tree = pytree.tree_flatten((given, kwargs))
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.leaves = leaves
        self.is_split = name in ARGUMENTS_ON_THE_CPU
        self.moving = [at for at, i in enumerate(self.places) if leaves[i].requires_grad]

    def values(self) -> list[torch.Tensor]:
        return [
            self.leaves[i].detach().clone(memory_format=torch.contiguous_format).resolve_conj() for i in self.places
        ]

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        leaves = list(self.leaves)
        for i, value in zip(self.places, values, strict=True):
            leaves[i] = value
        given, kwargs = pytree.tree_unflatten(leaves, self.tree)
        if not self.places or values[0].device.type == "cpu":
            kwargs = {k: ("cpu" if k == "device" else v) for k, v in kwargs.items()}
        input, args = (given, self.sample.args) if self.is_split else given
        return tensors(self.sample.output_process_fn_grad(self.op.op(input, *args, **kwargs)))

    def moved(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns other values from the same domain."""
        return [value.flip(tuple(range(value.ndim))) if value.is_floating_point() else value for value in values]


def weights(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """Returns fixed numbers as a result's gradient."""
    return torch.linspace(0.5, 1.5, int(np.prod(shape))).reshape(tuple(shape)).to(dtype)


def in_torch(case: Case, values: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    given = [value.clone().requires_grad_(at in case.moving) for at, value in enumerate(values)]
    results = case(*given)
    moving = [result for result in results if result.requires_grad]
    wanted = [given[at] for at in case.moving]
    if not wanted:
        return results, []
    if not moving:
        return results, [torch.zeros_like(value) for value in wanted]
    cotangents = [weights(result.shape, result.dtype) for result in moving]
    return results, list(torch.autograd.grad(moving, wanted, cotangents, materialize_grads=True))


def in_jax(case: Case, f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        if not case.moving:
            return f(*args), []

        def of_moving(*values: Any) -> Any:
            filled = list(args)
            for at, value in zip(case.moving, values, strict=True):
                filled[at] = value
            return f(*filled)

        def cotangent(result: Any) -> Any:
            if not jax.numpy.issubdtype(result.dtype, jax.numpy.inexact):
                return np.zeros(result.shape, jax.dtypes.float0)
            return jax.numpy.asarray(weights(result.shape, torch.float64).numpy(), dtype=result.dtype)

        results, pull = jax.vjp(of_moving, *(args[at] for at in case.moving))
        return results, pull([cotangent(result) for result in results])

    return run


def as_torch(tree: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    results, gradients = jax.tree.map(arrays.to_torch, tree)
    return list(results), [gradient.conj() for gradient in gradients]  # torch's are JAX's conjugates


def check(name: str, op: Any, sample: Any) -> None:
    case = Case(op, sample, name)
    is_predictable = predictable(op, sample)

    def fn(*values: torch.Tensor) -> Any:
        return case(*values)

    f = as_jax(fn)
    if not is_predictable:
        f, case.moving = jax.tree_util.Partial(f, key=jax.random.key(0)), []
    values = case.values()
    run = in_jax(case, f)
    tolerance = GRADIENT_TOLERANCE.get(name)

    def compare(got: Any, expected: Any, how: str) -> None:
        try:
            assert_same(got[0], expected[0], values=is_predictable)
            assert_same(got[1], expected[1], tolerance=tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name} under {how}: {error}") from error

    args = [jax.numpy.asarray(arrays.to_numpy(value)) for value in values]
    expected = in_torch(case, values)
    compare(as_torch(jax.jit(run)(*args)), expected, "jit")
    if not args:
        return
    others, also = case.moved(values), expected
    try:
        also = in_torch(case, others)
    except (RuntimeError, ValueError, IndexError):  # outside of its domain
        others = values
    is_batched = [at == 0 or at in case.moving or at % 2 == 0 for at in range(len(values))]
    batch = [
        jax.numpy.asarray(arrays.to_numpy(torch.stack([one, other]) if both else one))
        for one, other, both in zip(values, others, is_batched, strict=True)
    ]
    if not all(
        both or torch.equal(*pair) for both, pair in zip(is_batched, zip(values, others, strict=True), strict=True)
    ):
        also = in_torch(case, [o if both else v for v, o, both in zip(values, others, is_batched, strict=True)])
    axes = tuple(0 if both else None for both in is_batched)
    results = jax.jit(jax.vmap(run, axes))(*batch)
    for i, wanted in enumerate((expected, also)):
        compare(as_torch(jax.tree.map(lambda x, i=i: x[i], results)), wanted, "vmap")


def chosen() -> list[str]:
    usable = [name for name in OPS if name not in UNSUPPORTED and name not in LEFT_OUT]
    return usable if EVERYTHING else usable[::12]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype or "usual").removeprefix("torch."))
@pytest.mark.parametrize("name", chosen())
@pytest.mark.sampled(4)
def test_as_jax_is_torch(name: str, dtype: torch.dtype | None) -> None:
    op = OPS[name]
    usual = usual_dtype(op)
    if dtype is None:
        dtype = usual
    elif dtype == usual or not op.supports_dtype(dtype, "cpu"):
        return
    elif dtype == torch.int64 and name in ("topk", "kthvalue"):
        return  # any index of equal numbers is right
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for sample in samples(op, dtype, COUNT, requires_grad=differentiable):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(name, op, sample)
            except CaptureError as error:
                if (
                    name not in REFUSED
                    and name not in BY_ITS_KERNEL | READS_ITS_SIZE
                    and "seeds a generator" not in str(error)
                ):
                    raise
