"""Every OpInfo entry with out=: the right size, none, and memory with gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ops.opinfo import OPS, UNPREDICTABLE, UNSUPPORTED, assert_same, on_device, samples, to_device, usual_dtype
from tests.ops.test_opinfo import run

COUNT = 1


def outs(result: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.empty_like(result)
    yield torch.empty(0, dtype=result.dtype)  # is resized
    yield torch.zeros((*result.shape, 2), dtype=result.dtype)[..., 0]


def run_out(op: Any, sample: Any, out: torch.Tensor) -> Any:
    return op.op(sample.input, *sample.args, **{**sample.kwargs, "out": out})


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.supports_out])
def test_out(name: str) -> None:
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    op = OPS[name]
    dtype = usual_dtype(op)
    for sample in samples(op, dtype, COUNT):
        moved = on_device(sample)
        result = run(op, sample)
        if not isinstance(result, torch.Tensor):
            continue
        for out in outs(result):
            out_on_device = to_device(out)
            try:
                run_out(op, sample, out)
            except (RuntimeError, TypeError):
                continue  # this sample's call has no out=
            assert run_out(op, moved, out_on_device) is out_on_device
            # Not what the CPU wrote: some of its kernels (gelu, avg_pool3d, narrow_copy) mistake memory with gaps.
            assert_same(out_on_device, result, values=op.name not in UNPREDICTABLE)
