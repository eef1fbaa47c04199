"""Values that are read often are computed once; XLA:CPU would compute them for each read (``Emit::computed_once``)."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import _C
from torch_pjrt.decompositions.table import computed_once

pytestmark = pytest.mark.each_way

STORED = '@"torch_pjrt.stored"'
UNUSUAL = -77  # the first element for which the other branch gives the value


@pytest.mark.parametrize("first", [1, UNUSUAL])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.complex64]
)
def test_both_branches_give_the_value(dtype: torch.dtype, first: int) -> None:
    x = torch.tensor([[first, 0, 3], [7, -2, 5]], dtype=dtype)
    if dtype.is_floating_point:
        x[0, 1], x[1, 1], x[1, 2] = -0.0, float("nan"), float("inf")
    result = computed_once(x.to("pjrt") * 1).cpu()
    assert result.dtype == dtype
    torch.testing.assert_close(result, x, rtol=0, atol=0, equal_nan=True)
    if dtype.is_floating_point:
        assert result[0, 1].signbit()


@pytest.mark.parametrize("first", [False, True])
def test_bools(first: bool) -> None:
    x = torch.tensor([first, True, False])
    assert computed_once(x.to("pjrt")).tolist() == x.tolist()


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_scalars_and_what_is_empty_are_left_alone(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, device="pjrt") + 1
    text = _C.stablehlo([computed_once(x)], for_cpu=True)
    assert "stablehlo.if" not in text
    assert STORED not in text
    assert computed_once(x).shape == shape


def gradient_of_max_pool(x: torch.Tensor, kernel: int, stride: int, padding: int, dilation: int) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(F.max_pool2d(x, kernel, stride, padding, dilation).square().sum(), [x])
    return gradient


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (2, 3, 0, 1), (3, 1, 1, 2), (3, 2, 1, 2), (4, 3, 2, 1)]
)
def test_max_pools_indices_are_computed_once(kernel: int, stride: int, padding: int, dilation: int) -> None:
    """Each of nine taps computed them again: a pool of 3 and its gradient took 60 ms, and take 2 (eager 6)."""
    x = torch.randn(2, 3, 13, 11)
    gradient = gradient_of_max_pool(x.to("pjrt"), kernel, stride, padding, dilation)
    assert "stablehlo.if" in _C.stablehlo([gradient], for_cpu=True)
    assert "stablehlo.if" not in _C.stablehlo([gradient])
    torch.testing.assert_close(gradient.cpu(), gradient_of_max_pool(x, kernel, stride, padding, dilation))


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 2, 1), (2, 3, 0), (3, 1, 1), (4, 3, 2), ((3, 2), (2, 1), (1, 0))]
)
def test_average_pools_gradients_have_no_gaps(kernel: int, stride: int, padding: int) -> None:
    x = torch.randn(2, 3, 13, 11, requires_grad=True)
    y = x.detach().to("pjrt").requires_grad_()
    (expected,) = torch.autograd.grad(F.avg_pool2d(x, kernel, stride, padding).square().sum(), [x])
    (gradient,) = torch.autograd.grad(F.avg_pool2d(y, kernel, stride, padding).square().sum(), [y])
    torch.testing.assert_close(gradient.cpu(), expected)


def test_a_transposed_matrix_times_a_vector() -> None:
    """XLA:CPU took 18 ms for the transpose of 2,048 by 2,048, and takes 0.2 for the vector times the matrix."""
    a, v = torch.randn(8, 16), torch.randn(8)
    result = a.to("pjrt").t() @ v.to("pjrt")
    assert "(tensor<8xf32>, tensor<8x16xf32>) -> tensor<16xf32>" in _C.stablehlo([result], for_cpu=True)
    torch.testing.assert_close(result.cpu(), a.t() @ v)


def test_grid_sample_writes_rows() -> None:
    """Every channel of every tap used to compute its index again: 33 ms, now 3 (CPU eager 1.6)."""
    image, grid = torch.randn(2, 3, 5, 6, requires_grad=True), torch.randn(2, 4, 7, 2, requires_grad=True)
    inputs = [x.detach().to("pjrt").requires_grad_() for x in (image, grid)]
    expected = torch.autograd.grad(F.grid_sample(image, grid, align_corners=False).square().sum(), [image, grid])
    gradients = torch.autograd.grad(F.grid_sample(*inputs, align_corners=False).square().sum(), inputs)
    assert _C.stablehlo(list(gradients), for_cpu=True).count('"stablehlo.scatter"(') == 1
    torch_pjrt.sync()
    for result, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference)


@pytest.mark.compiled
def test_a_layer_norm_reads_its_gradient_from_memory() -> None:
    """A step of twelve norms took 40 times as long as eager's: each computed all norms after it again."""
    x = torch.randn(6, 8, device="pjrt", requires_grad=True)
    y = x
    for _ in range(3):
        y = F.layer_norm(y, (8,))
    (gradient,) = torch.autograd.grad(y.square().sum(), [x])
    assert _C.stablehlo([gradient], for_cpu=True).count(STORED) == 3
