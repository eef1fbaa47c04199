"""OpInfo entries compiled for CPU tensors against eager, forward and backward: ops that AOTAutograd decomposes before
the backend sees them, and kernels of the CPU that a captured graph names, give eager's results.

The suite takes the ops that PyTorch's own entries in the dispatcher would decompose, and a sample of the others;
TORCH_PJRT_TEST_COMPILED=1 takes all, in more dtypes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ops.opinfo import (
    GRADIENT_TOLERANCE,
    OPS,
    UNPREDICTABLE,
    UNSUPPORTED,
    assert_same,
    predictable,
    samples,
    tensors,
)

EVERYTHING = "TORCH_PJRT_TEST_COMPILED" in os.environ
DTYPES = (torch.float32, torch.complex64) + ((torch.bfloat16, torch.float64, torch.int64) if EVERYTHING else ())
COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "2"))
TAKEN_APART = {
    "linalg.pinv", "linalg.pinv.hermitian", "nn.functional.hardshrink", "nn.functional.interpolate.bicubic",
    "nn.functional.interpolate.bilinear", "nn.functional.interpolate.linear", "nn.functional.interpolate.nearest",
    "nn.functional.interpolate.nearest-exact", "nn.functional.interpolate.trilinear", "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss", "nn.functional.scaled_dot_product_attention", "nn.functional.softshrink",
}  # fmt: skip
# Entries that compiling changes in other respects than formulas.
LEFT_OUT: dict[str, str] = {}


def chosen() -> list[str]:
    usable = [name for name, op in OPS.items() if name not in UNSUPPORTED and op.name not in UNPREDICTABLE]
    return usable if EVERYTHING else [name for i, name in enumerate(usable) if name in TAKEN_APART or i % 24 == 0]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def gradients_of(outputs: Any, sample: Any) -> list[Any]:
    """Returns gradients, with fixed numbers as the results' gradients."""
    results = [t for t in tensors(sample.output_process_fn_grad(outputs)) if t.requires_grad]
    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if not results or not leaves:
        return []
    grads = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype) for t in results]
    return list(torch.autograd.grad(results, leaves, grads, allow_unused=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", chosen())
@pytest.mark.sampled(4)
def test_compiled_is_eager(name: str, dtype: torch.dtype) -> None:
    op = OPS[name]
    if not op.supports_dtype(dtype, "cpu"):
        return
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for sample in samples(op, dtype, COUNT, requires_grad=differentiable):
        if not predictable(op, sample):
            continue

        def call(sample: Any = sample) -> Any:
            return op.op(sample.input, *sample.args, **sample.kwargs)

        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, result = call(), torch.compile(call, backend="pjrt", dynamic=False)()
            assert_same(result, expected)
            if differentiable:
                tolerance = GRADIENT_TOLERANCE.get(name)
                assert_same(gradients_of(result, sample), gradients_of(expected, sample), tolerance=tolerance)
