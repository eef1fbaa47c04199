"""Every OpInfo entry that has samples of a sparse layout: forward and backward, against the CPU."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput, UnaryUfuncInfo
from torch.utils import _pytree as pytree

from tests.ops.opinfo import OPS, UNPREDICTABLE, tensors
from tests.sparse.layouts import DEVICE, LAYOUTS, assert_same, name, to

COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "2"))


def converted(sample: SampleInput, layout: torch.layout) -> SampleInput | None:
    """Returns a sample of an elementwise function with its matrix in the layout."""
    x = sample.input.detach()
    if x.dim() != 2 or 0 in x.shape or sample.args or sample.kwargs:
        return None
    blocks = {"blocksize": (1, 1)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    sparse = x.to_sparse(layout=layout, **blocks)
    return SampleInput(sparse.requires_grad_(sample.input.requires_grad))


def samples(op: Any, layout: torch.layout, dtype: torch.dtype, requires_grad: bool) -> Iterator[SampleInput]:
    """Yields PyTorch's samples of the layout, which few ops have, and strided samples of elementwise functions."""
    try:
        yield from itertools.islice(
            op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad), 0, None, 3
        )
    except NotImplementedError:
        if isinstance(op, UnaryUfuncInfo):
            for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
                if one := converted(sample, layout):
                    yield one


def has_samples(op: Any, layout: torch.layout) -> bool:
    flag = f"supports_{'sparse' if layout == torch.sparse_coo else 'sparse_' + name(layout)}"
    return getattr(op, flag, False) or op.name.startswith(("masked.", "sum", "prod", "amax", "amin", "mean", "mul"))


def run(op: Any, sample: SampleInput) -> Any:
    return op.op(sample.input, *sample.args, **sample.kwargs)


def outcome(op: Any, sample: SampleInput) -> Any:
    try:
        return run(op, sample)
    except Exception as error:
        return error


def gradients(result: Any, sample: SampleInput) -> Any:
    leaves = [x for x in tensors((sample.input, sample.args, sample.kwargs)) if x.requires_grad]
    results = [x.to_dense() if x.layout != torch.strided else x for x in tensors(result) if x.requires_grad]
    if not results:
        return []
    try:
        return torch.autograd.grad([x.abs().sum() for x in results], leaves, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        return error


def compare(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), ours
        if not isinstance(theirs, NotImplementedError):  # its message names the backend
            assert str(ours)[:30] == str(theirs)[:30]
        return
    if isinstance(ours, Exception):
        raise ours
    assert_same(ours, theirs, same_elements=False, rtol=1e-5, atol=1e-5)


CASES = [
    pytest.param(key, layout, id=f"{key}-{name(layout)}")
    for key, op in OPS.items()
    for layout in LAYOUTS
    if op.name not in UNPREDICTABLE and has_samples(op, layout)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "layout"), CASES)
def test_as_on_the_cpu(op: str, layout: torch.layout) -> None:
    info = OPS[op]
    dtype = next(dtype for dtype in (torch.float64, torch.int64, torch.bool) if dtype in info.dtypes)
    requires_grad = info.supports_autograd and dtype == torch.float64
    for given in itertools.islice(samples(info, layout, dtype, requires_grad), 4 * COUNT):
        kwargs = {key: DEVICE if key == "device" else value for key, value in given.kwargs.items()}
        moved = SampleInput(to(DEVICE, given.input), args=to(DEVICE, given.args), kwargs=to(DEVICE, kwargs))
        theirs, ours = outcome(info, given), outcome(info, moved)
        compare(ours, theirs)
        if requires_grad and not isinstance(theirs, Exception):
            compare(gradients(ours, moved), gradients(theirs, given))


def test_there_are_samples() -> None:
    assert len(CASES) > 150


def test_trees_are_moved_whole() -> None:
    x = torch.eye(2).to_sparse().requires_grad_()
    moved = to(DEVICE, [x, {"a": 1}])
    assert moved[0].requires_grad
    assert moved[0].device.type == DEVICE
    assert pytree.tree_leaves(moved)[1] == 1
