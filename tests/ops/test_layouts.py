"""Every OpInfo entry with operands in other memory layouts: interpreted, values and gradients are the CPU's."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

from tests.ops.layouts import LAYOUTS, behind_others, expanded, laid_out, run, transposed
from tests.ops.opinfo import (
    GRADIENT_TOLERANCE,
    OPS,
    UNSUPPORTED,
    assert_same,
    on_device,
    predictable,
    samples,
    usual_dtype,
)

COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "3"))

# Ops whose results for equal rows are no oracle.
NO_ORACLE = "equal rows have no variance, and the CPU divides by the root of what rounding leaves"
EXPANDED: dict[str, str] = {
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), NO_ORACLE),
    "nn.functional.batch_norm": NO_ORACLE,
    "masked.median": "the CPU's median of an expanded tensor is none of its numbers (torch 2.13)",
}


@pytest.mark.parametrize("name", [name for name in OPS if name not in UNSUPPORTED])
@pytest.mark.sampled(4)
def test_interpreted(name: str) -> None:
    op, dtype = OPS[name], usual_dtype(OPS[name])
    requires_grad = op.supports_autograd and dtype == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype, COUNT, requires_grad=requires_grad):
            for layout in (*LAYOUTS, transposed, behind_others):
                moved = laid_out(sample, layout)
                if moved is None or (layout is expanded and name in EXPANDED):
                    continue
                try:
                    expected = run(op, moved)
                except (RuntimeError, ValueError):  # the layout is none that this op takes
                    continue
                actual = run(op, on_device(moved, name))
                assert_same(actual, expected, values=predictable(op, sample), tolerance=GRADIENT_TOLERANCE.get(name))
