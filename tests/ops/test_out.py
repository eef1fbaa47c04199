"""Every OpInfo entry with out=: the right size, none, and memory with gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ops.opinfo import (
    DEVICE,
    OPS,
    UNPREDICTABLE,
    UNSUPPORTED,
    assert_same,
    on_device,
    samples,
    to_device,
    usual_dtype,
)
from tests.ops.test_opinfo import run
from tests.warned import warned

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


@pytest.mark.parametrize(
    "fill",
    [
        lambda out: torch.arange(4, out=out),
        lambda out: torch.arange(1, 9, 2, out=out),
        lambda out: torch.range(0, 3, out=out),
        lambda out: torch.linspace(0, 3, 4, out=out),
        lambda out: torch.logspace(0, 3, 4, base=2, out=out),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_memory_is_filled_in_its_own_shape(fill: Any) -> None:
    for shape in ((2, 2), (4, 1), (4,)):
        expected, held = torch.zeros(4, 6), torch.zeros(4, 6, device=DEVICE)
        result = fill(held.as_strided(shape, (6, 1)[: len(shape)], 2))
        assert result.shape == fill(expected.as_strided(shape, (6, 1)[: len(shape)], 2)).shape == shape
        assert held.tolist() == expected.tolist()
    assert fill(torch.zeros((), device=DEVICE)[None, None][:, :0]).tolist() == fill(torch.zeros(1, 0)).tolist()


@pytest.mark.parametrize("fill", [torch.arange, lambda n, *, out: torch.linspace(0, 3, n, out=out)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (4,)])
def test_a_shape_that_does_not_fit_is_resized_with_the_same_words(fill: Any, shape: tuple[int, ...]) -> None:
    outs = {device: torch.ones(shape, device=device) for device in (DEVICE, "cpu")}
    said = [(warned(lambda out=out: fill(4, out=out)), out.tolist()) for out in outs.values()]
    assert said[0] == said[1]
