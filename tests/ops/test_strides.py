"""Results and gradients have CPU eager's strides, on the device and in Dynamo's captures."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree as pytree

import torch_pjrt.dynamo.backend  # noqa: F401  (fake tensors are those of a compiled function)
from tests.ops.layouts import LAYOUTS, channels_last, laid_out, permuted, place, run
from tests.ops.opinfo import OPS, UNSUPPORTED, on_device, samples, usual_dtype

# By default every 16th op is tested, and ops whose kernels choose layouts of their own; with `all` every op.
EVERY = 1 if os.environ.get("TORCH_PJRT_TEST_STRIDES") == "all" else 16
OWN_WAYS = (
    "roll", "isin", "nn.functional.logsigmoid", "nn.functional.channel_shuffle", "nn.functional.batch_norm",
    "nn.functional.group_norm", "nn.functional.hardswish", "nn.functional.hardtanh", "masked_fill",
    "nn.functional.pad.replicate_negative", "nn.functional.mse_loss", "native_dropout_backward", "normal", "prod",
    "nn.functional.max_unpool2d", "floor_divide", "angle", "linalg.eig",
)  # fmt: skip

# Ops with other layouts, with the reason: on the device, and in the fake tensors of a capture.
BACKENDS_CHOICE = "the format of a convolution is the backend's: of three dimensions contiguous, of five the input's"
ONE_NODE = "one call, whose gradients lie as the tensors do; the .grad of a parameter does anyway"
DENSE = "LAPACK's solution is a part of a larger buffer, which does not leave the host"
DIFFERENT: dict[str, str] = {
    "nn.functional.conv1d": BACKENDS_CHOICE,
    "nn.functional.conv_transpose1d": BACKENDS_CHOICE,
    "nn.functional.conv_transpose3d": BACKENDS_CHOICE,
    "nn.functional.linear": ONE_NODE,
    "nn.functional.linear_cross_entropy": ONE_NODE,
    "nn.functional.linear_cross_entropy.chunked": ONE_NODE,
    "nn.functional.linear_cross_entropy.chunked_none": ONE_NODE,
    "nn.functional.multi_head_attention_forward": ONE_NODE,
    "nn.functional.scaled_dot_product_attention": ONE_NODE,
    "linalg.lstsq": DENSE,
    "linalg.lstsq.grad_oriented": DENSE,
}
OTHER_FORMULA = "PyTorch differentiates, or composes, fake tensors by another formula than it does the CPU's"
ON_THE_HOST = "LAPACK's, which no program holds: it runs beside it, and its result lies as eager's"
DIFFERENT_WHEN_CAPTURED: dict[str, str] = {
    "max.reduction_no_dim": OTHER_FORMULA,
    "min.reduction_no_dim": OTHER_FORMULA,
    "nn.functional.cross_entropy": OTHER_FORMULA,
    "nn.functional.one_hot": OTHER_FORMULA,
    "prod": OTHER_FORMULA,
    "ormqr": ON_THE_HOST,
    "linalg.householder_product": ON_THE_HOST,
}


def cases(name: str) -> Iterator[tuple[str, Any, SampleInput, list[Any]]]:
    """Yields samples in each layout that the CPU accepts, with the places that it gives."""
    op, dtype = OPS[name], usual_dtype(OPS[name])
    requires_grad = op.supports_autograd and dtype == torch.float32
    for i, sample in enumerate(samples(op, dtype, 6, requires_grad=requires_grad)):
        for layout in LAYOUTS:
            moved = laid_out(sample, layout)
            if moved is None:
                continue
            try:
                expected = run(op, moved)
            except (RuntimeError, ValueError):  # the layout is none that this op takes
                continue
            yield f"sample {i}, {layout.__name__}", op, moved, [place(x) for x in expected]


NAMES = [name for i, name in enumerate(OPS) if name not in UNSUPPORTED and (i % EVERY == 0 or name in OWN_WAYS)]


@pytest.mark.parametrize("name", NAMES)
def test_on_the_device(name: str) -> None:
    if name in DIFFERENT:
        pytest.skip(DIFFERENT[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, op, sample, expected in cases(name):
            actual = [place(x) for x in run(op, on_device(sample, name))]
            assert actual == expected, case


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(2)
def test_when_captured(name: str) -> None:
    if name in DIFFERENT_WHEN_CAPTURED:
        pytest.skip(DIFFERENT_WHEN_CAPTURED[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, op, sample, expected in cases(name):
            with FakeTensorMode() as mode:
                given = (sample.input, sample.args, sample.kwargs)
                input_, args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
                try:
                    results = run(op, SampleInput(input_, args=tuple(args), kwargs=kwargs))
                except (DynamicOutputShapeException, DataDependentOutputException):  # the graph is cut there
                    continue
                actual = [place(x) for x in results]
            assert actual == expected, case


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.roll(x, (1, 1), (0, 1)),
        lambda x: torch.roll(x, 1),
        torch.nn.functional.logsigmoid,
        lambda x: torch.isin(x, x.flatten()[:3]),
        lambda x: torch.isin(x, x),
        lambda x: torch.isin(x, 2.0),
        lambda x: torch.channel_shuffle(x, 2),
        lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        lambda x: torch.nn.functional.batch_norm(x, x.new_zeros(4), x.new_ones(4)),
        lambda x: x.masked_fill(x > 0, 0.0),
        lambda x: torch.angle(x.to(torch.complex64)),
    ],
)
def test_captured(function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    for layout in (channels_last, permuted) if dynamic else LAYOUTS:
        x = layout(torch.randn(2, 4, 3, 5))
        assert x is not None
        with FakeTensorMode(shape_env=ShapeEnv() if dynamic else None) as mode:
            captured = function(mode.from_tensor(x, static_shapes=not dynamic))
            strides = tuple(int(s) for s in captured.stride())
        assert strides == function(x).stride(), layout.__name__


@pytest.mark.parametrize("place", ["cpu", "pjrt"])
def test_a_compiled_function_views_what_eager_can(place: str) -> None:
    x = channels_last(torch.randn(2, 4, 3, 5))
    assert x is not None

    def flat(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rolled = torch.roll(x, (1, 1), (0, 1))
        return torch.nn.functional.logsigmoid(x).view(-1), rolled.as_strided((8,), (1,))

    for actual, expected in zip(torch.compile(flat, backend="pjrt")(x.to(place)), flat(x), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


WITHOUT_ELEMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": torch.relu,
    "abs": torch.abs,
    "isnan": torch.isnan,
    "logical_not": torch.logical_not,
    "add": lambda x: x + 1,
    "flip": lambda x: x.flip(0),
    "frexp": torch.frexp,
    "nan_to_num": torch.nan_to_num,
    "hardtanh": torch.nn.functional.hardtanh,
    "sin": torch.sin,
}


@pytest.mark.parametrize("name", WITHOUT_ELEMENTS)
def test_results_without_elements(name: str) -> None:
    function = WITHOUT_ELEMENTS[name]
    for x in (torch.zeros(0, 3).t(), torch.zeros(4, 6)[:0, ::2], torch.zeros(0, 1).expand(0, 3)):
        results, expected = function(x.to("pjrt")), function(x)
        assert [r.stride() for r in pytree.tree_leaves(results)] == [r.stride() for r in pytree.tree_leaves(expected)]
