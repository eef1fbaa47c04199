"""OpInfo's samples with and without composites give the same numbers, to the bit, forward and backward."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import OPS, UNSUPPORTED, on_device, samples, tensors, usual_dtype

# Every entry takes some minutes; CI takes some of them, others each time the table grows.
EVERY = 1 if os.environ.get("TORCH_PJRT_TEST_COMPOSITES") else 16
COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "1"))
NAMES = [name for name in OPS if name not in UNSUPPORTED][::EVERY]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8)


def run(op: Any, sample: Any) -> list[torch.Tensor]:
    """Returns the results, and the gradients of inputs that require them."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = tensors(op.op(sample.input, *sample.args, **sample.kwargs))
    inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    outputs = [r for r in results if r.requires_grad]
    grads: list[Any] = []
    if inputs and outputs:
        seeds = [torch.ones_like(r) for r in outputs]
        grads = list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))
    return [*results, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.cpu_arithmetic
def test_numbers_are_equal_to_the_bit(name: str) -> None:
    op = OPS[name]
    dtype = usual_dtype(op)
    if name.startswith(("empty", "new_empty")):
        pytest.skip("shows memory that was never written")
    for sample in samples(op, dtype, COUNT, requires_grad=op.supports_autograd and dtype.is_floating_point):
        moved = on_device(sample, name)
        plain = [bits(t) for t in run(op, moved)]
        with torch_pjrt.composites("all"):
            given = [bits(t) for t in run(op, moved)]
        assert len(plain) == len(given)
        for a, b in zip(plain, given, strict=True):
            assert torch.equal(a, b)
