"""Convolutions by ATen's kernels: the values, forward and backward, and who did them."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt.kernels import convolution

pytestmark = pytest.mark.compiled

CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": (F.conv2d, (2, 8, 32, 32), (16, 8, 3, 3), {"padding": 1}),
    "strided": (F.conv2d, (2, 8, 65, 33), (64, 8, 3, 5), {"stride": (2, 1), "padding": (0, 2), "dilation": (2, 1)}),
    "depthwise": (F.conv2d, (4, 64, 64, 64), (64, 1, 3, 3), {"groups": 64, "padding": 1}),
    "transposed": (F.conv_transpose2d, (2, 16, 32, 32), (16, 8, 4, 4), {"stride": 2, "padding": 1}),
    "volume": (F.conv3d, (1, 4, 16, 16, 16), (16, 4, 3, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, with_bias: bool, channels_last: bool) -> None:
    function, size, weight_size, options = CASES[case]
    tensors = [torch.randn(size), torch.randn(weight_size)]
    if with_bias:
        tensors.append(torch.randn(weight_size[1] if case == "transposed" else weight_size[0]))

    def results(device: str) -> list[torch.Tensor]:
        given = [x.to(device).requires_grad_() for x in tensors]
        y = function(*given, **options)
        gradients = torch.autograd.grad(y.square().sum(), given)
        return [x.detach().cpu() for x in (y, *gradients)]

    kernels = convolution.register(channels_last=channels_last)
    try:
        with torch_pjrt.explain() as report:
            ours = results("pjrt")
    finally:
        for kernel in kernels:
            kernel.remove()
    done = {one.name: one.done_by for run in report.graphs for one in run.composites}
    assert set(done) == {"aten.convolution.default", "aten.convolution_backward.default"}
    assert all(by.startswith("torch_pjrt_convolution") for by in done.values()), done
    assert all(by.split()[0].endswith("_of_rows") != channels_last for by in done.values()), done
    for mine, expected in zip(ours, results("cpu"), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_what_it_declines() -> None:
    x = torch.randn(1, 2, 8, 8, device="pjrt")
    kernels = convolution.register()
    try:
        with torch_pjrt.explain() as report:
            F.conv2d(x, x[:, :, :3, :3]).cpu()
            F.conv2d(x.double(), x[:, :, :3, :3].double()).cpu()
    finally:
        for kernel in kernels:
            kernel.remove()
    said = [one.done_by for run in report.graphs for one in run.composites]
    assert [by.rpartition(": ")[2] for by in said] == ["it is small", "it is for float32"]


def negate(weight: torch.Tensor) -> None:
    weight.neg_()


def swap(weight: torch.Tensor) -> None:
    weight[[0, 1]] = weight[[1, 0]]


def change_one(weight: torch.Tensor) -> None:
    weight.view(-1)[-1] += 1


def behind_its_back(weight: torch.Tensor) -> None:
    """Without a new version."""
    weight.numpy()[0, 0, 0, 0] = 3


def test_a_weight_that_is_written_to_is_packed_anew() -> None:
    """A weight that stays is kept as oneDNN has it; what is written between calls is seen, however it is written."""
    x, weight = torch.randn(2, 32, 32, 32), torch.randn(32, 32, 3, 3)
    kernels = convolution.register()
    try:
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, w: F.conv2d(x, w, padding=1), backend="pjrt")
        for change in (negate, swap, change_one, behind_its_back, negate):
            for _ in range(4):
                expected = F.conv2d(x, weight, padding=1)
                torch.testing.assert_close(compiled(x, weight), expected, rtol=1e-4, atol=1e-3)
            change(weight)
        for _ in range(3):  # and one that changes in each call
            weight.add_(1)
            expected = F.conv2d(x, weight, padding=1)
            torch.testing.assert_close(compiled(x, weight), expected, rtol=1e-4, atol=1e-2)
    finally:
        for kernel in kernels:
            kernel.remove()
