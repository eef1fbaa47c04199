"""Mistakes that PyTorch's Meta kernels accept, and XLA's rewrites: errors and values are the CPU's."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_map

import torch_pjrt

pytestmark = pytest.mark.each_way

Program = Callable[[str], object]


def ones(*sizes: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, device=device, dtype=dtype)


def mask(device: str) -> torch.Tensor:
    return ones(3, device=device, dtype=torch.bool)


def number(device: str) -> torch.Tensor:
    return torch.tensor(1.0, device=device)


MISTAKES: dict[str, Program] = {
    "floor_divide_ broadcasts": lambda d: ones(3, 1, device=d).floor_divide_(ones(3, 4, device=d)),
    "_foreach_maximum_ broadcasts": lambda d: torch._foreach_maximum_([ones(3, 1, device=d)], [ones(3, 4, device=d)]),
    "index_put_ at floats": lambda d: ones(3, device=d).index_put_((ones(1, device=d),), number(d)),
    "mv of two dtypes": lambda d: ones(3, 4, device=d).mv(ones(4, device=d, dtype=torch.int64)),
    "matmul of two dtypes": lambda d: ones(3, 4, device=d, dtype=torch.int64) @ ones(4, device=d),
    "max of nothing": lambda d: ones(0, 4, device=d).max(),
    "min of nothing": lambda d: ones(0, 4, device=d).min(),
    "median of nothing": lambda d: ones(0, 4, device=d).median(0),
    "mode of nothing": lambda d: ones(0, 4, device=d).mode(0),
    "cummax of a number": lambda d: number(d).cummax(2),
    "logcumsumexp of a number": lambda d: number(d).logcumsumexp(2),
    "sort of a number": lambda d: number(d).sort(2),
    "argsort of a number": lambda d: number(d).argsort(-2),
    "var of integers": lambda d: ones(3, device=d, dtype=torch.int64).var(),
    "std of integers": lambda d: ones(3, device=d, dtype=torch.int64).std(0),
    "mvlgamma of order 0": lambda d: torch.mvlgamma(ones(3, device=d), 0),
    "kaiser_window of integers": lambda d: torch.kaiser_window(3, dtype=torch.int64, device=d),
    "kaiser_window of less than nothing": lambda d: torch.kaiser_window(-1, device=d),
    "probabilities above 1": lambda d: functional.binary_cross_entropy(2 * ones(3, device=d), ones(3, device=d)).item(),
    "bernoulli above 1": lambda d: torch.bernoulli(2 * ones(3, device=d)).tolist(),
    "normal of a negative deviation": lambda d: torch.normal(number(d), -ones(3, device=d)).tolist(),
    "dropout above 1": lambda d: torch.native_dropout(ones(3, device=d), 1.5, True)[0].tolist(),
    "dropout below 0": lambda d: torch.native_dropout(ones(3, device=d), -0.5, True)[0].tolist(),
    "multinomial of nothing": lambda d: torch.multinomial(0 * ones(3, device=d), 1).tolist(),
    "multinomial of infinity": lambda d: torch.multinomial(torch.inf * ones(3, device=d), 1).tolist(),
    "bucketize into rows": lambda d: torch.bucketize(ones(4, device=d), ones(4, 4, device=d)),
    "bucketize into a number": lambda d: torch.bucketize(ones(4, device=d), number(d)),
    "searchsorted of other rows": lambda d: torch.searchsorted(ones(4, 3, device=d), ones(3, 3, device=d)),
    "searchsorted on no side": lambda d: torch.searchsorted(ones(4, device=d), ones(4, device=d), side="mean"),
    "a convolution without groups": lambda d: functional.conv1d(
        ones(1, 4, 4, device=d), ones(4, 4, 1, device=d), groups=0
    ),
    "more indices than dimensions": lambda d: number(d).index_put_((ones(1, device=d).long(),) * 2, number(d)),
    "relu of bools": lambda d: functional.relu(ones(3, device=d, dtype=torch.bool)),
    "celu with alpha 0": lambda d: functional.celu(ones(3, device=d), 0.0),
    "a bias of another dtype": lambda d: functional.linear(
        ones(2, 3, device=d), ones(4, 3, device=d), ones(4, device=d).long()
    ),
    "an index into a number": lambda d: number(d).index_put((ones(1, device=d).long(),), number(d), accumulate=True),
    "a mask of more dimensions": lambda d: ones(3, device=d).index_put_((mask(d).expand(3, 3),), number(d)),
    "a mask of another size": lambda d: ones(4, device=d).index_put_((mask(d),), number(d)),
    "multinomial of no categories": lambda d: torch.multinomial(ones(0, device=d), 1),
    "multinomial of rows of none": lambda d: torch.multinomial(ones(3, 0, device=d), 2, replacement=True),
    "a convolution of two dtypes": lambda d: functional.conv1d(
        ones(1, 3, 4, device=d, dtype=torch.float64), ones(2, 3, 2, device=d)
    ),
    "a convolution of bfloat16 by floats": lambda d: functional.conv2d(
        ones(1, 3, 4, 4, device=d).bfloat16(), ones(2, 3, 2, 2, device=d)
    ),
    "a bias of one element": lambda d: functional.conv1d(
        ones(1, 3, 4, device=d), ones(2, 3, 2, device=d), ones(1, device=d)
    ),
    "a bias of the inputs' size": lambda d: functional.conv_transpose2d(
        ones(1, 3, 4, 4, device=d), ones(3, 2, 2, 2, device=d), ones(3, device=d)
    ),
    "a convolution of nothing": lambda d: functional.conv1d(
        ones(1, 3, 0, device=d), ones(2, 3, 2, device=d), padding=2
    ),
    "a kernel of nothing": lambda d: functional.conv1d(ones(1, 3, 4, device=d), ones(2, 3, 0, device=d)),
    "a convolution without dilation": lambda d: functional.conv1d(
        ones(1, 1, 4, device=d), ones(1, 1, 1, device=d), dilation=0
    ),
    "a transposed convolution to no channels": lambda d: functional.conv_transpose1d(
        ones(1, 1, 4, device=d), ones(1, 0, 3, device=d)
    ),
    "a transposed convolution to nothing": lambda d: functional.conv_transpose2d(
        ones(1, 1, 1, 3, device=d), ones(1, 1, 1, 2, device=d), stride=2, padding=1, output_padding=1
    ),
    "statistics of nothing": lambda d: torch.native_batch_norm(
        ones(0, 2, device=d), None, None, None, None, True, 0.1, 1e-5
    ),
    "a convolution to no channels": lambda d: functional.conv1d(ones(1, 3, 4, device=d), ones(0, 3, 2, device=d)),
    "a transposed convolution of no channels": lambda d: functional.conv_transpose1d(
        ones(1, 0, 4, device=d), ones(2, 3, 2, device=d)
    ),
    "a weight that broadcasts the loss": lambda d: functional.binary_cross_entropy_with_logits(
        ones(2, 3, device=d), ones(2, 3, device=d), weight=ones(4, 1, 1, device=d)
    ),
    "a target that broadcasts the input": lambda d: functional.soft_margin_loss(
        ones(3, device=d), ones(2, 3, device=d)
    ),
    "a target of doubles": lambda d: functional.binary_cross_entropy(
        ones(3, device=d), ones(3, device=d, dtype=torch.float64)
    ),
    "logits that are integers": lambda d: functional.binary_cross_entropy_with_logits(
        ones(3, device=d, dtype=torch.int64), ones(3, device=d)
    ),
    "integers of a normal distribution": lambda d: torch.normal(ones(3, device=d).long(), ones(3, device=d)),
    "an average of nothing": lambda d: functional.adaptive_avg_pool2d(ones(1, 2, 4, 0, device=d), 2),
    "a grid of doubles": lambda d: functional.grid_sample(
        ones(1, 2, 3, 3, device=d), ones(1, 2, 2, 2, device=d, dtype=torch.float64), align_corners=False
    ),
    "output_padding as large as the stride": lambda d: functional.conv_transpose1d(
        ones(1, 2, 4, device=d), ones(2, 3, 2, device=d), output_padding=1
    ),
    "softshrink by less than nothing": lambda d: functional.softshrink(ones(3, device=d), -1.0),
    "histc from minus infinity": lambda d: torch.histc(ones(3, device=d), 4, -torch.inf, 0),
    "no element of a number": lambda d: number(d).index_select(0, torch.arange(0, device=d)),
    "indices of two dimensions": lambda d: ones(3, 2, device=d).index_select(0, torch.zeros(2, 1, device=d).long()),
    "three elements of a number": lambda d: number(d).index_select(0, torch.zeros(3, device=d).long()),
    "put at floats": lambda d: ones(3, device=d).put_(ones(1, device=d), ones(1, device=d)),
    "index_fill at floats": lambda d: ones(3, device=d).index_fill(0, ones(1, device=d), 0),
    "planes of scores for a number": lambda d: torch.ops.aten.nll_loss2d(number(d), number(d).long()),
    "histc from 1 to 0": lambda d: torch.histc(ones(3, device=d), 4, 1, 0),
    "histc from 1 to infinity": lambda d: torch.histc(ones(3, device=d), 4, 1, torch.inf),
    "randint from 5 to 3": lambda d: torch.randint(5, 3, (2,), device=d),
    "1 - a mask": lambda d: 1 - ones(3, device=d, dtype=torch.bool),
    "a number - True": lambda d: torch._foreach_sub([ones(3, device=d)], True),
    "a rounded quotient of bools": lambda d: torch.div(mask(d), mask(d), rounding_mode="trunc"),
    "a rounded quotient of complex numbers": lambda d: torch.div(mask(d), 1j, rounding_mode="trunc"),
    "powers of bools": lambda d: mask(d) ** mask(d),
    "complex numbers of bfloat16": lambda d: torch.complex(mask(d).bfloat16(), mask(d).bfloat16()),
    "polar coordinates of bfloat16": lambda d: torch.polar(mask(d).bfloat16(), mask(d).bfloat16()),
    "probabilities that are NaN": lambda d: functional.binary_cross_entropy(
        ones(3, device=d) * torch.nan, ones(3, device=d)
    ).item(),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_raises_what_the_cpu_raises(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((RuntimeError, IndexError)) as expected:
            MISTAKES[name]("cpu")
        with pytest.raises(expected.type) as raised:
            MISTAKES[name]("pjrt")
    if "kaiser_window of integers" not in name:  # its message lists all options
        assert str(raised.value).startswith(str(expected.value).split("  (")[0])


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (lambda x, v: functional.celu(x, v), (1.0, 0.5, 0.0)),
        (lambda x, v: functional.softshrink(x, v), (1.0, 0.5, -1.0)),
        (lambda x, v: torch.histc(x, 4, v, 2.0), (0.0, 1.0, 3.0)),
        (lambda x, v: x.renorm_(v, 0, 1.0), (1.0, 2.0, -1.0)),
    ],
    ids=["celu", "softshrink", "histc", "renorm_"],
)
def test_numbers_are_judged_in_known_calls_too(op: Any, values: tuple[float, ...]) -> None:
    for value in values[:-1]:
        assert op(ones(3, 4, device="pjrt"), value).tolist() == op(ones(3, 4, device="cpu"), value).tolist()
    with pytest.raises(RuntimeError) as expected:
        op(ones(3, 4, device="cpu"), values[-1])
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        op(ones(3, 4, device="pjrt"), values[-1])


FOR_REALS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "erf": torch.erf,
    "i0": torch.i0,
    "log_ndtr": torch.special.log_ndtr,
    "erfcx": torch.special.erfcx,
    "lgamma": torch.lgamma,
    "round": torch.round,
    "hypot": lambda x: torch.hypot(x, x.real),
    "xlogy": lambda x: torch.xlogy(x.real, x),
    "nansum": torch.nansum,
    "bernoulli": torch.bernoulli,
    "mish": functional.mish,
    "gelu": functional.gelu,
    "hardshrink": functional.hardshrink,
    "mse_loss": lambda x: functional.mse_loss(x, x),
    "huber_loss": lambda x: functional.huber_loss(x.real, x),
    "nll_loss": lambda x: functional.nll_loss(x, x.real[:, 0].long()),
    "binary_cross_entropy_with_logits": lambda x: functional.binary_cross_entropy_with_logits(x, x.real),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "batch_norm in evaluation": lambda x: functional.batch_norm(x, x.real[0], x.real[0]),
    "group_norm": lambda x: functional.group_norm(x, 1),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x[None], 2),
    "grid_sample": lambda x: functional.grid_sample(x.expand(1, 1, 3, 4), x.real.view(1, 2, 3, 2), align_corners=True),
}


@pytest.mark.parametrize("name", FOR_REALS)
def test_refuses_complex_numbers_as_the_cpu_does(name: str) -> None:
    """They used to give numbers: of real parts (i0), of squares that aren't lengths (batch_norm), or x (round)."""
    x = torch.ones(3, 4, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError) as expected:
            FOR_REALS[name](x)
        with pytest.raises(expected.type) as raised:
            FOR_REALS[name](x.to("pjrt"))
    assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("dtypes", itertools.permutations((torch.bfloat16, torch.float32, torch.float64), 2), ids=str)
@pytest.mark.cpu_arithmetic
def test_results_of_the_first_dtype(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    def losses(device: str) -> list[torch.Tensor]:
        x, y = (torch.linspace(0.1, 0.9, 4, device=device).to(dtype) for dtype in dtypes)
        return [
            functional.huber_loss(x, y.flip(0)),
            functional.soft_margin_loss(x, y, reduction="none"),
            functional.binary_cross_entropy(x, x, weight=y),
            torch.normal(x, 0 * y),
        ]

    for result, expected in zip(losses("pjrt"), losses("cpu"), strict=True):
        torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("index", [(), (1,), (3,), (0,)])
@pytest.mark.parametrize("size", [(), (1,), (4,), (2, 3)])
def test_a_number_counts_as_one_element_where_scatter_writes(size: tuple[int, ...], index: tuple[int, ...]) -> None:
    """The gradient of a row's gather at a 0-d index is a scatter at one."""
    if 0 not in index and (len(size) > 1 or (max(size, default=1) == 1 and index == (3,))):
        return  # another rank, or out of range

    def write(source: tuple[int, ...], device: str) -> list[object]:
        x = torch.arange(float(math.prod(size)), device=device).reshape(size).requires_grad_()
        at, values = ones(*index, device=device).cumsum(0).long() - 1, 5 * ones(*source, device=device)
        results = [x.scatter(0, at, values), x.scatter(0, at, 7.0), x.scatter_add(0, at, values)]
        results += [x.scatter_reduce(0, at, values, "mean"), x.scatter(0, at, values, reduce="multiply")]
        results += [x.scatter_reduce(0, at, values, "amax", include_self=False), x.gather(0, at)]
        results += torch.autograd.grad(results[2].sum() + results[-1].sum(), x)
        return [result.tolist() for result in results]

    for source in [index] if len(size) > 1 else [index, (), (5,)]:
        if math.prod(source) >= math.prod(index):
            assert write(source, "pjrt") == write(source, "cpu")


@pytest.mark.parametrize("numbers", [[4, 2], [4, 2.5], [2**20, 3]])
def test_lists_of_numbers_may_be_of_integers(numbers: list[float]) -> None:
    """Adafactor with foreach=True divides by the sizes of its parameters."""

    def results(device: str) -> list[torch.Tensor]:
        x = [torch.arange(1.0, 4).to(device), torch.arange(2, 6).to(device)]
        y = [t.double() for t in x]
        lists = [f(x, numbers) for f in (torch._foreach_add, torch._foreach_mul, torch._foreach_div)]
        lists += [torch._foreach_sub(y, numbers), torch._foreach_maximum(y, numbers)]
        lists += [torch._foreach_clamp_min(y, numbers), torch._foreach_pow(y, numbers)]
        lists += [torch._foreach_addcmul(y, y, y, numbers), torch._foreach_addcdiv(y, y, y, numbers)]
        torch._foreach_div_(y, numbers)
        return [t.cpu() for t in itertools.chain(*lists, y)]

    for given, expected in zip(results("pjrt"), results("cpu"), strict=True):
        torch.testing.assert_close(given, expected)


def test_nansum_over_no_dimension_is_over_all() -> None:
    x = torch.tensor([[1.0, torch.nan], [2.0, 3.0]])
    for keepdim in (False, True):
        for f in (torch.nansum, torch.nanmean):
            torch.testing.assert_close(f(x.to("pjrt"), dim=[], keepdim=keepdim).cpu(), f(x, dim=[], keepdim=keepdim))


@pytest.mark.parametrize("x", [torch.inf, -torch.inf, torch.nan])
def test_histc_of_an_impossible_range(x: float) -> None:
    for device in ("cpu", "pjrt"):
        with pytest.raises(RuntimeError, match=r"range of .* is not finite"):
            torch.histc(torch.tensor([1.0, x], device=device), 4).tolist()
        numbers = torch.tensor([1.0, 2.0], device=device)
        torch.histc(numbers, 4, 0, 3).tolist()
        with pytest.raises(RuntimeError, match=r"torch\.histc: max must be larger than min"):
            torch.histc(numbers, 4, 3, 0).tolist()


FOR_FLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "cross_entropy": lambda x: functional.cross_entropy(x[None], x[:1] - 1),
    "mse_loss": lambda x: functional.mse_loss(x, x),
    "huber_loss": lambda x: functional.huber_loss(x, x),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, x),
    "lerp": lambda x: x.lerp(x, 2),
    "frac": torch.frac,
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "bernoulli": torch.bernoulli,
    "elu by 2": lambda x: functional.elu(x, 2),
    "celu by 2": lambda x: functional.celu(x, 2),
    "nextafter": lambda x: torch.nextafter(x, x),
    "round to tens": lambda x: x.round(decimals=-1),
    "rrelu": functional.rrelu,
    "rrelu in training": lambda x: functional.rrelu(x, training=True),
    "glu": functional.glu,
    "nll_loss": lambda x: functional.nll_loss(x[None], x[:1] - 1),
    "avg_pool2d": lambda x: functional.avg_pool2d(x.int()[None, None], 1),
    "interpolate, nearest": lambda x: functional.interpolate(x[None, None], 4),
    "interpolate, nearest-exact": lambda x: functional.interpolate(x[None, None, None], 4, mode="nearest-exact"),
    "interpolate, linear": lambda x: functional.interpolate(x[None, None], 4, mode="linear"),
    "interpolate, linear, bytes": lambda x: functional.interpolate(x.byte()[None, None], 4, mode="linear"),
    "interpolate, bilinear": lambda x: functional.interpolate(x[None, None, None], 4, mode="bilinear"),
    "interpolate, bicubic": lambda x: functional.interpolate(x[None, None, None], 4, mode="bicubic"),
}
for _name in ["gelu", "silu", "mish", "softplus", "hardswish", "hardsigmoid", "leaky_relu", "logsigmoid", "hardshrink"]:
    FOR_FLOATS[_name] = getattr(functional, _name)


@pytest.mark.parametrize("name", FOR_FLOATS)
def test_refuses_integers(name: str) -> None:
    x = torch.tensor([1, 2])
    with pytest.raises(NotImplementedError) as expected:
        FOR_FLOATS[name](x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotImplementedError) as raised:
            FOR_FLOATS[name](x.to("pjrt"))
    assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "softshrink", "leaky_relu"])
def test_refuses_complex_numbers(name: str) -> None:
    """Complex numbers have no order; XLA:CPU ends the process if asked for the lesser one."""
    x = torch.tensor([1 + 2j, -1 - 1j])
    with pytest.raises(NotImplementedError) as expected:
        getattr(functional, name)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotImplementedError) as raised:
            getattr(functional, name)(x.to("pjrt"))
    assert str(raised.value) == str(expected.value)


def test_mode_into_given_tensors() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
    values, indices = torch.empty(2, device="pjrt"), torch.empty(2, dtype=torch.int64, device="pjrt")
    torch.mode(x.to("pjrt"), 1, out=(values, indices))
    torch.testing.assert_close((values.cpu(), indices.cpu()), tuple(x.mode(1)))


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("other", DTYPES, ids=str)
def test_equal_of_other_sizes_and_dtypes(dtype: torch.dtype, other: torch.dtype) -> None:
    def outcomes(device: str) -> list[object]:
        outcomes: list[object] = []
        for x, y in ((0.1, 0.1), (2.0, 2.0), (300, 300), (1, [1, 1])):
            try:
                outcomes.append(torch.tensor([x]).to(dtype).to(device).equal(torch.tensor([y]).to(other).to(device)))
            except RuntimeError as error:  # before they were compared
                outcomes.append(str(error))
        return outcomes

    assert outcomes("pjrt") == outcomes("cpu")


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 50])
def test_kaiser_window(length: int, periodic: bool, dtype: torch.dtype | None) -> None:
    for beta in (12.0, 0.0):
        window = torch.kaiser_window(length, periodic, beta, dtype=dtype, device="pjrt")
        torch.testing.assert_close(window.cpu(), torch.kaiser_window(length, periodic, beta, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("function", [torch.triu_indices, torch.tril_indices])
def test_indices_of_a_triangle(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    for row, column, offset in [(4, 4, 1), (4, 4, -1), (3, 5, 0), (5, 3, 2), (5, 3, -2), (0, 3, 0), (3, 3, 7)]:
        indices = function(row, column, offset, dtype=dtype, device="pjrt")
        expected = function(row, column, offset, dtype=dtype)
        assert indices.dtype == dtype
        assert torch.equal(indices.cpu(), expected)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_infinite_complex_numbers() -> None:
    parts = [0.0, 2.0, torch.inf, -torch.inf, torch.nan]
    x = torch.tensor([complex(a, b) for a in parts for b in parts])
    result, expected = (torch.view_as_real(t.exp().cpu()) for t in (x.to("pjrt"), x))
    torch.testing.assert_close(result, expected, equal_nan=True)
    torch.testing.assert_close(x.to("pjrt").abs().cpu(), x.abs(), equal_nan=True)
    assert torch.equal(x.to("pjrt").isinf().cpu(), x.isinf())


def test_logarithms_of_powers() -> None:
    """XLA rewrites it to n log|x|, which is not NaN below 0."""
    x, n = torch.tensor([-2.0, -1.0, 0.0, 2.0, 3.0]), torch.tensor([3.0, 1.0, 2.0, 2.0, -1.0])
    torch.testing.assert_close(x.to("pjrt").pow(n.to("pjrt")).log().cpu(), x.pow(n).log(), equal_nan=True)
    for exponent in (1.5, 3.0, 2.5, 5.0):  # varies, so it becomes an argument
        torch.testing.assert_close((x.to("pjrt") ** exponent).log().cpu(), (x**exponent).log(), equal_nan=True)


def test_a_product_with_a_mask_keeps_nan() -> None:
    """XLA rewrites it to a select between x and 0."""
    x = torch.tensor([1.0, torch.nan, torch.inf, 2.0, -torch.inf])
    for mask in (torch.tensor([True, False, False, False, False]), x > 0, (x > 0) & (x < 2)):
        for y in (x, x.double(), torch.complex(x, x)):
            device_x, device_mask = y.to("pjrt"), mask.to("pjrt")
            torch.testing.assert_close((device_mask * device_x).cpu(), mask * y, equal_nan=True)
            torch.testing.assert_close((device_x * device_mask.to(y.dtype)).cpu(), y * mask, equal_nan=True)
    torch.testing.assert_close((mask.to("pjrt") / 0).cpu(), mask / 0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_quotients_in_half_precision(dtype: torch.dtype) -> None:
    """The CPU rounds each step of a quotient, and the whole number of a remainder, which determines the result."""
    torch.manual_seed(0)
    a, b = (torch.randn(4096) * 20).to(dtype), (torch.randn(4096) * 3).to(dtype)
    b[100:200] *= 1e-6  # subnormal in float16
    for f in (
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b[0], rounding_mode="trunc"),
        lambda a, b: torch.div(a, 2.3, rounding_mode="trunc"),
        lambda a, b: a // b,
        lambda a, b: a // 2.3,
        lambda a, b: a % b,
        lambda a, b: a % 2.3,
        lambda a, b: torch.fmod(a, 2.3),
        lambda a, b: 2.3 % b,
    ):
        torch.testing.assert_close(f(a.to("pjrt"), b.to("pjrt")).cpu(), f(a, b), rtol=0, atol=0, equal_nan=True)


VARIANCES: list[Program] = [
    lambda device: torch.std(torch.ones(2, 3, device=device), dim=-1, correction=3),
    lambda device: torch.var_mean(torch.ones(1, device=device)),
    lambda device: torch.std_mean(torch.ones(2, 1, device=device), 1, keepdim=True),
    lambda device: torch.ones((), device=device).var(0),
    lambda device: torch.ones(3, 0, device=device).std(0),
    lambda device: torch.var(torch.ones(1, 3, device=device), 0, out=torch.empty(3, device=device)),
    lambda device: torch.ones(2, 3, device=device).var((0, 1), unbiased=False),  # the last two don't warn
    lambda device: functional.layer_norm(torch.ones(2, 1, device=device), (1,)),
]


@pytest.mark.parametrize("index", range(len(VARIANCES)))
def test_variances_without_degrees_of_freedom(index: int) -> None:
    def warnings_of(device: str) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tree_map(torch.Tensor.cpu, VARIANCES[index](device))  # the call that runs doesn't warn again
        return [str(warning.message).split(" (Triggered")[0] for warning in caught]

    for _ in range(2):
        assert warnings_of("pjrt") == warnings_of("cpu")


def test_dropout_of_integers_has_gradients_that_are_floats() -> None:
    grad, mask = torch.arange(300), torch.arange(300) % 2 == 0
    expected = torch.ops.aten.native_dropout_backward(grad, mask, 1.5)
    result = torch.ops.aten.native_dropout_backward(grad.to("pjrt"), mask.to("pjrt"), 1.5)
    torch.testing.assert_close(result.cpu(), expected)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
