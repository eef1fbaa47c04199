"""Python numbers that PyTorch refuses are raised at the call with the CPU's words, also for a known call."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt

DEVICE = "pjrt"

# Calls whose number is converted to the result's dtype.
CONVERTED: dict[str, Callable[[Tensor, complex], Tensor]] = {
    "add's alpha": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp_": lambda x, n: x.clamp_(max=n),
    "constant_pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
    "fill_": lambda x, n: x.fill_(n),
    "fill_diagonal_": lambda x, n: x.view(2, 2).fill_diagonal_(n),
    "full_like": lambda x, n: torch.full_like(x, n),
    "hardtanh": lambda x, n: torch.nn.functional.hardtanh(x, 0, n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0], device=x.device), n),
    "item assignment": lambda x, n: x.__setitem__(0, n) or x,
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "pow": lambda x, n: x**n,
    "rsub's alpha": lambda x, n: torch.rsub(x, x, alpha=n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0], device=x.device), n),
}


def outcome(call: Callable[[Tensor, complex], Tensor], x: Tensor, number: complex) -> object:
    try:
        return call(x, number).tolist()
    except (RuntimeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize(("dtype", "fitting", "number"), [(torch.uint8, 3, 300), (torch.int32, 7, 2**40)])
@pytest.mark.parametrize("name", CONVERTED)
def test_integers_that_do_not_fit(name: str, dtype: torch.dtype, fitting: int, number: int) -> None:
    call, x = CONVERTED[name], torch.ones(4, dtype=dtype)
    for value in (number, fitting, number, -1):  # as a first call, and as a known one
        assert outcome(call, x.to(DEVICE), value) == outcome(call, x.clone(), value), value
    assert "without overflow" in str(outcome(call, x.to(DEVICE), number))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
@pytest.mark.parametrize("name", ["fill_", "fill_diagonal_", "full_like", "item assignment", "new_full", "scatter"])
def test_complex_numbers_in_real_tensors(name: str, dtype: torch.dtype) -> None:
    call, x = CONVERTED[name], torch.ones(4, dtype=dtype)
    for value in (1j, 2 + 0j, 1j):
        assert outcome(call, x.to(DEVICE), value) == outcome(call, x.clone(), value), value
    assert "without overflow" in str(outcome(call, x.to(DEVICE), 1j))


@pytest.mark.parametrize(
    ("dtype", "number"), [(torch.uint8, 300), (torch.float16, 1e6), (torch.float32, 1e300), (torch.float32, 1j)]
)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_copied_number_is_converted_as_a_tensor(dtype: torch.dtype, number: complex) -> None:
    x = torch.ones(4, dtype=dtype)
    assert x.to(DEVICE).copy_(torch.tensor(number)).tolist() == x.clone().copy_(torch.tensor(number)).tolist()


@pytest.mark.parametrize(("dtype", "number"), [(torch.float16, -1e9), (torch.float16, 10**6), (torch.float32, 1e300)])
@pytest.mark.parametrize("name", ["masked_fill", "fill_", "clamp", "full_like", "add's alpha"])
def test_floats_that_do_not_fit(name: str, dtype: torch.dtype, number: float) -> None:
    call, x = CONVERTED[name], torch.ones(4, dtype=dtype)
    for value in (2.0, number, -math.inf, number):  # infinity is a value of every float dtype
        assert outcome(call, x.to(DEVICE), value) == outcome(call, x.clone(), value), value
    assert "without overflow" in str(outcome(call, x.to(DEVICE), number))


@pytest.mark.parametrize(
    ("dtype", "number", "fitting"),
    [(torch.uint8, 300, -1), (torch.float16, 1e6, -float("inf")), (torch.float32, 1j, 1e39)],
    ids=str,
)
def test_numbers_on_the_cpu_that_do_not_fit(dtype: torch.dtype, number: complex, fitting: float) -> None:
    fills: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, n: x.masked_fill(x == 0, n),
        lambda x, n: x.masked_fill_(x == 0, n),
        lambda x, n: x.index_fill_(0, torch.tensor([0], device=x.device), n),
    ]
    for fill in fills:
        for n in (torch.tensor(fitting), torch.tensor(number)):
            x = torch.zeros(3, dtype=dtype)
            assert outcome(fill, x.to(DEVICE), n)[:40] == outcome(fill, x, n)[:40]
    x = torch.ones(3, dtype=torch.uint8)
    assert x.to(DEVICE).clamp(max=torch.tensor(300)).tolist() == x.clamp(max=torch.tensor(300)).tolist()


def test_numbers_of_float8() -> None:
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.zeros(2, dtype=dtype)
        assert x.to(DEVICE).fill_(240.0).float().tolist() == x.fill_(240.0).float().tolist()
        with pytest.raises(RuntimeError, match=r"Float8.* without overflow"):
            x.fill_(1e6)
        with pytest.raises(RuntimeError, match=r"Float8.* without overflow"):
            x.to(DEVICE).fill_(1e6)


def test_infinity_is_no_integer() -> None:
    for value in (math.inf, math.nan):
        assert "without overflow" in str(
            outcome(CONVERTED["fill_"], torch.ones(4, dtype=torch.int64).to(DEVICE), value)
        )


def test_nothing_is_changed_by_a_number_that_does_not_fit() -> None:
    x = torch.arange(3, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(RuntimeError, match="uint8_t without overflow"):
        x.fill_(1000)
    with torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match="uint8_t without overflow"):
        x.masked_fill_(x > 0, 1000)
    assert x.tolist() == [0, 1, 2]
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_numbers_that_are_taken_as_tensors_wrap() -> None:
    x = torch.ones(2, dtype=torch.uint8)
    for call in (lambda x: x + 300, lambda x: x * 300, lambda x: 300 - x, lambda x: x == 300):
        assert call(x.to(DEVICE)).tolist() == call(x).tolist()


def test_a_number_that_does_not_fit_in_a_compiled_graph() -> None:
    x = torch.ones(3, dtype=torch.float16)

    def fill(x: Tensor) -> Tensor:
        return (x * 2).fill_(1e9)

    with pytest.raises(RuntimeError, match="without overflow"):
        fill(x)
    with pytest.raises(Exception, match="without overflow"):
        torch.compile(fill, backend="pjrt")(x)


@pytest.mark.parametrize("order", [math.inf, -math.inf, -1.0, -0.5])
def test_a_norm_of_nothing_after_one_that_there_is(order: float) -> None:
    nothing = torch.empty(0, 3, device=DEVICE)
    assert torch.linalg.vector_norm(nothing, 2).item() == 0
    for dim in (None, 0):
        with pytest.raises(RuntimeError, match="does not have an identity"):
            torch.linalg.vector_norm(nothing, order, dim=dim)


def test_cholesky_ex_checks_errors() -> None:
    matrix = torch.tensor([[1.0, 2.0], [2.0, 1.0]], device=DEVICE)
    assert torch.linalg.cholesky_ex(matrix).info.item() > 0
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"linalg\.cholesky_ex: The factorization could not be completed"
    ):
        torch.linalg.cholesky_ex(matrix, check_errors=True)
    if hasattr(torch.ops.aten, "cholesky"):  # until torch 2.13
        with pytest.raises(torch.linalg.LinAlgError, match=r"cholesky: The factorization could not be completed"):
            torch.cholesky(matrix)
        with pytest.raises(
            torch.linalg.LinAlgError, match=r"cholesky: \(Batch element 0\): The factorization could not"
        ):
            torch.cholesky(matrix[None], out=torch.empty(0, device=DEVICE))
        torch.testing.assert_close(torch.cholesky(matrix @ matrix), torch.linalg.cholesky(matrix @ matrix))
    factor = torch.linalg.cholesky_ex(matrix @ matrix, check_errors=True).L
    torch.testing.assert_close(factor @ factor.T, matrix @ matrix)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


LISTS_OF_NUMBERS: dict[str, Callable[[list[Tensor], list[float]], object]] = {
    "mul": lambda x, n: torch._foreach_mul(x, n),
    "mul_": lambda x, n: torch._foreach_mul_(x, n),
    "add": lambda x, n: torch._foreach_add(x, n),
    "pow": lambda x, n: torch._foreach_pow(x, n),
    "addcdiv_": lambda x, n: torch._foreach_addcdiv_(x, x, x, n),
}


@pytest.mark.parametrize("op", LISTS_OF_NUMBERS)
@pytest.mark.parametrize("numbers", [[], [2.0], [2.0, 3.0, 4.0]])
def test_a_number_for_each_tensor(op: str, numbers: list[float]) -> None:
    """A list of fewer numbers used to be read beyond its end, and one of more was accepted."""
    words = []
    for device in ("cpu", DEVICE):
        x = [torch.ones(3, device=device), torch.ones(2, device=device)]
        with pytest.raises(RuntimeError) as raised:
            LISTS_OF_NUMBERS[op](x, numbers)
        words.append(str(raised.value))
    assert words[0] == words[1]


def row(x: Tensor) -> Tensor:
    return torch.tensor([0, 1], device=x.device)


# Scalars in place of an ordinary 2, each in an op that converts them in a different way.
SCALARS: dict[str, Callable[[Tensor, complex], object]] = {
    "foreach_add": lambda x, n: torch._foreach_add([x, x], n),
    "foreach_sub": lambda x, n: torch._foreach_sub([x], n),
    "foreach_mul": lambda x, n: torch._foreach_mul([x, x], [n, 2]),
    "foreach_div": lambda x, n: torch._foreach_div([x], [n]),
    "foreach_add_": lambda x, n: torch._foreach_add_([x], n),
    "foreach_mul_": lambda x, n: torch._foreach_mul_([x], [n]),
    "foreach_addcmul": lambda x, n: torch._foreach_addcmul([x], [x], [x], n),
    "foreach_maximum": lambda x, n: torch._foreach_maximum([x], n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "elu": lambda x, n: torch.nn.functional.elu(-x, n),
    "softplus": lambda x, n: torch.nn.functional.softplus(x, n),
    "leaky_relu": lambda x, n: torch.nn.functional.leaky_relu(-x, n),
    "leaky_relu_backward": lambda x, n: torch.ops.aten.leaky_relu_backward(x, -x, n, False),
    "addcmul": lambda x, n: x.addcmul(x, x, value=n),
    "addcdiv": lambda x, n: x.addcdiv(x, x, value=n),
    "addcmul_": lambda x, n: x.addcmul_(x, x, value=n),
    "addmv": lambda x, n: torch.addmv(x[0], x, x[0], alpha=n),
    "addmm": lambda x, n: torch.addmm(x, x, x, beta=n),
    "baddbmm": lambda x, n: torch.baddbmm(x[None], x[None], x[None], alpha=n),
    "addr": lambda x, n: torch.addr(x, x[0], x[0], alpha=n),
    "index_add": lambda x, n: x.index_add(0, row(x), x, alpha=n),
    "index_fill": lambda x, n: x.index_fill(0, row(x), n),
    "add's alpha to a number": lambda x, n: torch.add(x, 1, alpha=n),
    "sub_'s alpha": lambda x, n: x.sub_(x, alpha=n),
    "rsub's alpha": lambda x, n: torch.rsub(x, 1, alpha=n),
    "threshold_backward": lambda x, n: torch.ops.aten.threshold_backward(x, x, n),
    "eq": lambda x, n: x == n,
    "bucketize": lambda x, n: torch.bucketize(n, x[0]),
    "pow": lambda x, n: x**n,
    "mul": lambda x, n: x * n,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.sampled(2)
def test_scalars_of_another_kind(name: str, dtype: torch.dtype) -> None:
    """A value that the result can't hold is refused where the CPU refuses it, and never dropped silently."""

    def given(device: str, number: complex) -> object:
        x = torch.ones(2, 2, dtype=dtype, device=device)
        try:
            result = SCALARS[name](x, number)
            results = result if isinstance(result, list | tuple) else [result]
            return [y.cpu() for y in [*results, x] if y is not None]
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return type(error), str(error).splitlines()[0][:60]

    for number in (2 + 1j, 2 + 0j, 1.5, True, 2, 1e300, 2 + 1j):
        expected, ours = given("cpu", number), given(DEVICE, number)
        if isinstance(expected, list):
            torch.testing.assert_close(ours, expected, equal_nan=True)
        else:
            assert ours == expected, number


@pytest.mark.each_way
def test_scalars_that_wrap_or_are_infinite_are_no_mistakes() -> None:
    x = torch.ones(3, dtype=torch.int8)
    for call in (lambda x: x.bitwise_and(0xFFF), lambda x: x.remainder(300), lambda x: x < 300):
        assert call(x.to(DEVICE)).tolist() == call(x).tolist()
    y = torch.ones(3)
    for number in (float("inf"), float("nan"), -1e30):
        torch.testing.assert_close(
            y.to(DEVICE).addcmul(y.to(DEVICE), y.to(DEVICE), value=number).cpu(),
            y.addcmul(y, y, value=number),
            equal_nan=True,
        )
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
