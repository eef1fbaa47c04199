"""Runs PyTorch's OpInfo samples on the device and on the CPU, and compares everything that a user can see."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

import torch_pjrt

DEVICE = "pjrt"
# Both search the stack for a unittest.TestCase for each sample. With pytest's stack that takes 0.04 to 0.18 s, and
# there is none.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None

# These draw random numbers, or show memory that was never written: only types are compared.
UNPREDICTABLE = {
    "bernoulli", "cauchy", "dropout", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential",
    "geometric", "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "normal", "pca_lowrank", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "svd_lowrank",
    "torch.ops.aten._flash_attention_forward", "uniform",
}  # fmt: skip

# Ops that the device doesn't support, by the name in OPS, with the reason.
UNSUPPORTED: dict[str, str] = {
    "chalf": "XLA has no complex type of two 16-bit floats",
    **dict.fromkeys(
        ("torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward",
         "nn.functional.batch_norm.without_cudnn"), "PyTorch has samples for CUDA alone: nothing to compare with"),
    **dict.fromkeys(
        ("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref",
         "jiterator_2inputs_2outputs"), "jiterator compiles CUDA source text; PyTorch has it for CUDA and ROCm only"),
}  # fmt: skip

# Ops that PyTorch's own kernel runs, in some sample at least: within the program if programs may call it, else on the
# host. They are ops of LAPACK's family without a rule, and functions that PyTorch does not decompose.
BY_ITS_KERNEL = {
    "hash_tensor", "linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve",
    "linalg.matrix_sqrth", "linalg.polar",
}  # fmt: skip


# The size of these ops' results depends on data, in some sample at least, and is read.
READS_ITS_SIZE = {
    "argwhere", "bincount", "combinations", "masked_select", "nonzero", "unique", "unique_consecutive",
}  # fmt: skip


def may_call_kernels() -> bool:
    """Returns whether programs may call PyTorch's own kernels."""
    is_cpu = torch_pjrt._C.platform_name() == "cpu" and torch_pjrt._C.is_host_memory()
    return is_cpu and os.environ.get("TORCH_PJRT_LIBRARY_KERNELS") != "0"


def on_the_host(name: str) -> bool:
    return name in BY_ITS_KERNEL and not may_call_kernels()


# PyTorch itself refuses views with gaps between their elements, or leaves them to the CPU.
WITHOUT_GAPS = {
    "native_group_norm", "sparse.mm.reduce", "sparse.sampled_addmm", "torch._scaled_mm", "torch._scaled_mm_v2",
    "view_as_complex",
}  # fmt: skip

# LAPACK chooses the signs of these vectors, so tests/ops/factorization checks them on other platforms.
OF_ANY_SIGN = {"linalg.eigh", "linalg.svd", "svd"}

# (rtol, atol) where float32 itself is that far from the true value: the same formula in another order differs by more
# than the general tolerance, on the CPU too.
GRADIENT_TOLERANCE: dict[str, tuple[float, float]] = {
    "matrix_exp": (1e-3, 2e-3),  # 1e-3 of the smallest of a matrix's numbers, in both: sums of large ones
    "logcumsumexp": (5e-3, 1e-2),  # a difference of logarithms of sums: the CPU is 5e-3 from float64
}

# PyTorch requires their tensor arguments on the CPU, whatever the input's device.
ARGUMENTS_ON_THE_CPU = {"tensor_split"}

OPS: dict[str, OpInfo] = {f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}": op for op in op_db}
if torch.__version__ < "2.12":
    del OPS["torch._scaled_mm_v2"]  # the CPU has no kernel to compare with


def usual_dtype(op: OpInfo) -> torch.dtype:
    """Returns float32, or for an op without it the first of a fixed order (a set's order differs between processes)."""
    order = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.float8_e4m3fn)
    return next(dtype for dtype in order if op.supports_dtype(dtype, "cpu"))


def to_device(tree: Any) -> Any:
    """Copies tensors to the device; copies of tensors that require grad require it too."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        is_strided = plain.layout == torch.strided
        whole = plain.untyped_storage().nbytes() // max(1, plain.itemsize) if is_strided else plain.numel()
        if whole != plain.numel() and not plain.is_conj() and not plain.is_neg():
            # The memory around a view is copied with it.
            memory = torch.as_strided(plain, (whole,), (1,), 0).to(DEVICE)
            moved = memory.as_strided(plain.size(), plain.stride(), plain.storage_offset())
        else:
            moved = plain.to(DEVICE)
        return moved.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, move, tree)


def on_device(sample: SampleInput, name: str = "") -> SampleInput:
    """Returns the sample with its tensors, and any device argument, on the device."""
    if name in ARGUMENTS_ON_THE_CPU:
        return SampleInput(to_device(sample.input), args=tuple(sample.args), kwargs=sample.kwargs)
    kwargs = {k: (DEVICE if k == "device" else v) for k, v in sample.kwargs.items()}
    return SampleInput(to_device(sample.input), args=to_device(tuple(sample.args)), kwargs=to_device(kwargs))


def samples(op: OpInfo, dtype: torch.dtype, count: int, requires_grad: bool = False) -> Iterator[SampleInput]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), count)


def compute(results: Any) -> None:
    """Computes all pending tensors in a tree as one graph: one program compiles in less time than one for each."""
    torch_pjrt.sync(t for t in tensors(results) if t.device.type == DEVICE and t.layout == torch.strided)


def float8_product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Calculates ``torch._scaled_mm``. Values beyond float8_e4m3fn are NaN in CPU eager if the processor has AMX
    (through oneDNN), and the largest number on other processors.
    """
    product = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    if bias is not None:
        product = product + bias.double()
    if scale_result is not None and out_dtype is not None and out_dtype.itemsize == 1:
        product = product / scale_result.double()
    return product.to(out_dtype or a.dtype)


CALCULATED: dict[str, Callable[..., torch.Tensor]] = {"torch._scaled_mm": float8_product}


def on_the_cpu(op: OpInfo) -> Callable[..., Any]:
    """Returns the reference for an op's results: the CPU's kernel, unless that depends on the processor."""
    function: Callable[..., Any] = CALCULATED.get(op.name, op.op)
    return function


def predictable(op: OpInfo, sample: SampleInput) -> bool:
    if op.name in OF_ANY_SIGN and not may_call_kernels():
        return False
    return op.name not in UNPREDICTABLE and not sample.kwargs.get("dropout_p")


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def assert_same(
    actual: Any,
    expected: Any,
    values: bool = True,
    strides: bool = False,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Asserts equal trees, dtypes, shapes and (within torch.testing's tolerance for float32, a little wider) values."""
    actual_leaves, expected_leaves = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(actual_leaves) == len(expected_leaves)
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e) or not values, f"{a} != {e}"
            continue
        assert a.dtype == e.dtype, f"dtype {a.dtype}, on the CPU {e.dtype}"
        assert a.shape == e.shape, f"shape {tuple(a.shape)}, on the CPU {tuple(e.shape)}"
        if strides:
            assert a.stride() == e.stride(), f"strides {a.stride()}, on the CPU {e.stride()}"
        if not values:
            continue
        rtol, atol = (2e-4, 2e-5) if e.dtype in (torch.float32, torch.complex64) else (None, None)
        if e.dtype in (torch.float16, torch.bfloat16):
            rtol, atol = (2e-2, 2e-2) if e.dtype == torch.bfloat16 else (5e-3, 5e-3)
        if tolerance:
            rtol, atol = tolerance
        torch.testing.assert_close(a.detach().cpu(), e.detach(), rtol=rtol, atol=atol, equal_nan=True)
