"""Softmax, layer norms, sums and extremes of many rows by PyTorch's kernels (Note [Claims])."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from torch_pjrt import _C

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

aten = torch.ops.aten
MANY, FEW = (16_400, 64), (12, 64)
KERNELS = ("aten::_softmax(self=", "aten::native_layer_norm(input=", "aten::amax(self=")
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30]


def rows(sizes: tuple[int, ...] = MANY, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns rows, the first ones with special values, and one row of -inf."""
    torch.manual_seed(0)
    x = torch.randn(sizes)
    for i, value in enumerate(SPECIAL):
        x[i, 3 * i] = value
    x[len(SPECIAL)] = -float("inf")
    return x.to(dtype)


CASES = {
    "softmax": lambda x: x.softmax(-1),
    "softmax, three dimensions": lambda x: x.view(-1, 4, x.shape[-1]).softmax(-1),
    "softmax, not the last": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(1),
    "softmax's gradient": lambda x: aten._softmax_backward_data(x, x.sigmoid(), 1, x.dtype),
    "log_softmax's gradient": lambda x: aten._log_softmax_backward_data(x, x, 1, x.dtype),
    "layer norm": lambda x: aten.native_layer_norm(x, [x.shape[1]], x[7], x[8], 1e-5),
    "layer norm, no bias": lambda x: aten.native_layer_norm(x, [x.shape[1]], x[7], None, 1e-5),
    "layer norm, no weight": lambda x: aten.native_layer_norm(x, [x.shape[1]], None, None, 1e-5),
    "layer norm of two dimensions": lambda x: aten.native_layer_norm(x.view(-1, 4, 64), [4, 64], None, None, 1e-5),
    "sum": lambda x: x.sum(-1),
    "sum, kept": lambda x: x.view(-1, 2, 32).sum((1, 2), keepdim=True),
    "mean": lambda x: x.mean(1),
    "greatest": lambda x: x.amax(-1),
    "least": lambda x: x.amin(-1),
    "logsumexp": lambda x: x.logsumexp(1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_values(name: str, dtype: torch.dtype) -> None:
    x = rows(dtype=dtype)
    expected, result = CASES[name](x), CASES[name](x.to("pjrt"))
    near = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 2e-2}[dtype]
    for mine, reference in zip(
        *[given if isinstance(given, tuple) else (given,) for given in (result, expected)], strict=True
    ):
        if dtype == torch.bfloat16 and mine.dtype != reference.dtype:
            continue  # a norm's statistics, which are float32 here as on CUDA
        assert (mine.dtype, mine.shape, mine.stride()) == (reference.dtype, reference.shape, reference.stride())
        torch.testing.assert_close(mine.cpu(), reference, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("asked", [(True, True, True), (True, False, False), (False, True, True), (False, False, True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_a_layer_norm(asked: tuple[bool, bool, bool], weighted: bool) -> None:
    x, dy = torch.randn(MANY), torch.randn(MANY)
    weight, bias = (torch.randn(64), torch.randn(64)) if weighted else (None, None)
    asked = asked if weighted else (asked[0], False, False)
    if not any(asked):
        return

    def gradients(device: str) -> list[torch.Tensor]:
        given = [None if t is None else t.to(device) for t in (x, weight, bias, dy)]
        _, mean, rstd = aten.native_layer_norm(given[0], [64], given[1], given[2], 1e-5)
        return aten.native_layer_norm_backward(given[3], given[0], [64], mean, rstd, given[1], given[2], list(asked))

    for mine, reference in zip(gradients("pjrt"), gradients("cpu"), strict=True):
        assert (mine is None) == (reference is None)
        if mine is not None:
            torch.testing.assert_close(mine.cpu(), reference, rtol=1e-4, atol=1e-4)


def test_which_they_are() -> None:
    def text(x: torch.Tensor) -> str:
        y = F.layer_norm(x.softmax(-1), (64,))
        return _C.stablehlo([y, y.amax(-1)], for_cpu=True)

    many = text(rows().to("pjrt"))
    for kernel in KERNELS:
        assert many.count(f'call = "{kernel}') == 1
    assert not any(kernel in text(rows(FEW).to("pjrt")) for kernel in KERNELS)
    halves = text(rows(dtype=torch.float16).to("pjrt"))  # summed as float32
    assert not any(kernel in halves for kernel in KERNELS[:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sums_of_rows_are_products(dtype: torch.dtype) -> None:
    x = rows(dtype=dtype).to("pjrt")
    for summed in ((x * x).sum(-1), x.mean(-1)):
        text = _C.stablehlo([summed], for_cpu=True)
        assert "dot_general" in text  # which fuses with what computes the rows
        assert not any(other in text for other in ("custom_call", "stablehlo.reduce "))
    assert "dot_general" not in _C.stablehlo([rows(FEW).to("pjrt").sum(-1)], for_cpu=True)
    assert "dot_general" not in _C.stablehlo([x.sum(-1)])


def test_a_mean_of_wide_rows_is_one_call() -> None:
    text = _C.stablehlo([torch.ones(8, 4096, device="pjrt").mean(-1)], for_cpu=True)
    assert "aten::mean.dim(" in text
    assert "divide" not in text
    assert "divide" in _C.stablehlo([rows().to("pjrt").mean(0)], for_cpu=True)
