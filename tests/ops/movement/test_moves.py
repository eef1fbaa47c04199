"""Data movement keeps the bits: XLA:CPU gets bfloat16 as integers (Note [Data movement on bits])."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torch_pjrt
from tests.ops.opinfo import compute

DEVICE = "pjrt"

pytestmark = pytest.mark.each_way


def every_number(dtype: torch.dtype) -> Tensor:
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).reshape(256, 256)


def places(x: Tensor) -> Tensor:
    return torch.arange(255, -1, -1, device=x.device)


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "block_diag": lambda x: torch.block_diag(x, x[:3]),
    "cat": lambda x: torch.cat([x, x.flip(0)], 1),
    "cat of slices": lambda x: torch.cat([x[:3], x, x[1:, :]]),
    "copysign": lambda x: x.copysign(x.flip(0)),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[7]),
    "expand": lambda x: x[:, :1].expand(256, 9).clone(),
    "fill": lambda x: x.clone().fill_(-0.0),
    "flip": lambda x: x.flip(0, 1),
    "full": lambda x: torch.full_like(x, 0.1),
    "gather": lambda x: x.gather(0, places(x)[None].expand(256, 256)),
    "index": lambda x: x[:, places(x)],
    "index_put": lambda x: x.index_put((places(x),), x),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.3),
    "nan_to_num": lambda x: x.nan_to_num(1.5, 2.0),
    "neg": torch.neg,
    "pad": lambda x: F.pad(x, (1, 2, 3, -4), value=-1e-40),
    "pad.circular": lambda x: F.pad(x[None], (3, 2), "circular"),
    "put": lambda x: x.put(places(x), x[5]),
    "roll": lambda x: x.roll((3, 5), (0, 1)),
    "select_scatter": lambda x: x.select_scatter(x[0], 1, 3),
    "slice": lambda x: x[1:-2:3, 5:].clone(),
    "stack": lambda x: torch.stack([x, x.flip(0)], -1),
    "transpose": lambda x: x.t().reshape(-1)[7:].clone(),
    "tril": torch.tril,
    "where": lambda x: torch.where(places(x) % 3 == 0, x, x.flip(0)),
    "write": lambda x: x.clone().index_fill_(0, places(x)[:9], 2.0).narrow(1, 3, 9).zero_(),
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_every_number_of_16_bits(name: str, dtype: torch.dtype) -> None:
    """At most a NaN becomes another NaN."""
    x = every_number(dtype)
    there = MOVES[name](x.to(DEVICE))
    compute([there])
    actual, expected = there.cpu(), MOVES[name](x)
    assert actual.dtype == expected.dtype == dtype
    is_number = ~expected.isnan()
    assert torch.equal(actual.isnan(), ~is_number)
    assert torch.equal(actual.view(torch.int16)[is_number], expected.view(torch.int16)[is_number])


def test_gradients_of_moves() -> None:
    grads = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        x = torch.randn(256, 256).bfloat16().to(device).requires_grad_()
        parts = [x.diagonal(1), x[places(x)[:100]].reshape(-1), x[3:9, ::2].reshape(-1), x.take(places(x)), -x[0]]
        torch.cat(parts).float().square().sum().backward()
        assert x.grad is not None
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_float64_is_rounded_by_way_of_float32(dtype: torch.dtype) -> None:
    halfway = torch.tensor([1 + 2**-8, 1 + 2**-11, 3.0, 1 + 3 * 2**-8]).double()
    x = torch.cat(
        [halfway, halfway + 2**-40, halfway - 2**-40, -halfway, halfway * 1e300, halfway / 0, halfway * 1e-42]
    )
    assert torch.equal(x.to(DEVICE).to(dtype).cpu().view(torch.int16), x.to(dtype).view(torch.int16))


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_part_among_zeros_is_padded(dtype: torch.dtype, programs: list[str]) -> None:
    x = torch.randn(40, 40).to(dtype)
    there = torch.zeros(50, 60, dtype=dtype, device=DEVICE)
    there[3:43, 7:47] = x.to(DEVICE)
    actual = there.cpu()
    assert torch.equal(actual, F.pad(x, (7, 13, 3, 7)))
    text = "".join(programs)
    assert "stablehlo.pad" in text
    assert "dynamic_update_slice" not in text


def test_moves_in_a_loop_and_a_choice() -> None:
    """Bits that are computed in a region are not visible outside."""
    x = torch.randn(8, 8).bfloat16()

    def halves(x: Tensor) -> Tensor:
        turned = torch.cond(x.sum() > 0, lambda y: torch.cat([y[4:], y[:4]]), lambda y: y.flip(0), (x,))
        return torch.cat([turned, x])

    actual = torch.compile(halves, backend="pjrt")(x)
    assert torch.equal(actual, halves(x))


def that_is_read(text: str) -> list[str]:
    """Yields the lines of a program whose result another line reads, one by one from the end."""
    read: set[str] = set()
    lines = []
    for line in reversed(text.splitlines()):
        result, _, op = line.strip().partition(" = ") if line.strip().startswith("%") else ("", "", line)
        if result and result not in read:
            continue
        read.update(re.findall(r"%\w+", op))
        lines.append(line)
    return lines[::-1]


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
def test_no_conversion_is_between(programs: list[str]) -> None:
    def moved(x: Tensor) -> Tensor:
        return torch.cat([-x[1:, 2:], F.pad(x, (0, -2)).roll(1, 0), torch.zeros_like(x[:, 2:])])

    x = torch.randn(8, 8).bfloat16()
    assert torch.equal(torch.compile(moved, backend="pjrt")(x), moved(x))
    (text,) = programs
    ops = [line for line in that_is_read(text) if re.search(r" = .*xbf16>", line) and ".constant" not in line]
    assert ops
    assert all("bitcast_convert" in op for op in ops), text
    # On any other platform they are moves of bfloat16.
    assert "bitcast_convert" not in torch_pjrt.to_stablehlo(moved, x.to(DEVICE))


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
def test_a_reshape_alone_moves_nothing(programs: list[str]) -> None:
    def product(x: Tensor) -> Tensor:
        return x.reshape(7, 60) @ x.reshape(60, 7)

    def there_and_back(x: Tensor) -> Tensor:
        return x.reshape(7, 60).reshape(2, 210).reshape(60, 7) @ x

    x, y = torch.randn(20, 21).bfloat16(), torch.randn(7, 60).bfloat16()
    torch.testing.assert_close(torch.compile(product, backend="pjrt")(x), product(x))
    torch.testing.assert_close(torch.compile(there_and_back, backend="pjrt")(y), there_and_back(y))
    of_both, folded = programs
    assert "bitcast_convert" not in of_both + folded
    assert sum("reshape" in line for line in that_is_read(folded)) == 1, folded


def test_with_others_dtypes_and_nothing() -> None:
    x, y = torch.randn(3, 2).bfloat16(), torch.randn(3, 4)
    empty = torch.empty(0)
    for parts in ([x, y], [empty, x], [empty.bfloat16(), x, x[:, :0], x], [x]):
        actual = torch.cat([part.to(DEVICE) for part in parts], 1)
        expected = torch.cat(parts, 1)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual.cpu(), expected)
