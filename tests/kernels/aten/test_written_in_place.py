"""PyTorch's kernels write into a tensor in place if nothing else needs its old value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt

pytestmark = [pytest.mark.host_memory, pytest.mark.compiled]
DEVICE = "pjrt"
SIZE, ROWS = 512, 3


def index_of(x: Tensor) -> Tensor:
    return torch.tensor([5, 2, 7][:ROWS], device=x.device)


def mask_of(x: Tensor) -> Tensor:
    return (torch.arange(len(x), device=x.device) % 2 == 0)[:, None]


Write = Callable[[Tensor, Tensor], Tensor]
WRITES: dict[str, Write] = {
    "index_copy": lambda x, rows: x.index_copy(0, index_of(x), rows[:ROWS]),
    "index_add": lambda x, rows: x.index_add(0, index_of(x), rows[:ROWS], alpha=2),
    "scatter_add": lambda x, rows: x.scatter_add(0, index_of(x)[:, None].expand(ROWS, 128), rows[:ROWS]),
    "masked_scatter": lambda x, rows: x.masked_scatter(mask_of(x), rows),
}
OF_BFLOAT16: dict[str, Write] = {
    "index_put": lambda x, rows: x.index_put((index_of(x),), rows[:ROWS]),
    "index_put, added": lambda x, rows: x.index_put((index_of(x),), rows[:ROWS], accumulate=True),
    "put": lambda x, rows: x.put(index_of(x), rows[0, :ROWS]),
}
CASES = [(name, dtype) for name in WRITES for dtype in (torch.float32, torch.bfloat16)]
CASES += [(name, torch.bfloat16) for name in OF_BFLOAT16]
each_write = pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda value: str(value))


def given(dtype: torch.dtype, size: int = SIZE) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 128).to(dtype), torch.randn(size, 128).to(dtype)


def changed(name: str) -> Write:
    return (WRITES | OF_BFLOAT16)[name]


@each_write
def test_what_it_was_is_kept_where_it_is_needed(name: str, dtype: torch.dtype) -> None:
    write = changed(name)

    def f(x: Tensor, rows: Tensor) -> list[Tensor]:
        sums = x + rows
        after = write(sums, rows)
        return [write(x, rows), x, write(after, rows), after, sums, write(x, x), write(rows, x)]

    x, rows = given(dtype)
    for got, expected in zip(f(x.to(DEVICE), rows.to(DEVICE)), f(x, rows), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


@each_write
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_argument_that_is_changed(name: str, dtype: torch.dtype, device: str) -> None:
    write = changed(name)

    @torch.compile(backend="pjrt")
    def step(x: Tensor, rows: Tensor) -> Tensor:
        x.copy_(write(x, rows))
        return x[2] + rows[2]

    x, rows = given(dtype)
    cache = x.clone().to(device)
    memory = cache.data_ptr()
    for _ in range(3):
        got = step(cache, rows.to(device))
        x = write(x, rows)
        torch.testing.assert_close(got.cpu(), x[2] + rows[2], rtol=0, atol=0)
        torch.testing.assert_close(cache.cpu(), x, rtol=0, atol=0)
    assert device == DEVICE or cache.data_ptr() == memory


@each_write
def test_the_program_says_so(name: str, dtype: torch.dtype, programs: list[str]) -> None:
    x, rows = (t.to(DEVICE) for t in given(dtype, SIZE + 1))  # unlike other tests' programs
    torch_pjrt.sync()
    programs.clear()
    torch_pjrt.sync(changed(name)(x, rows))
    assert ", over %0" in programs[-1]
    assert programs[-1].count("output_operand_alias<") == 1


def test_what_is_read_there_too_is_not_written_over(programs: list[str]) -> None:
    x = torch.ones(SIZE, 128, device=DEVICE)
    torch_pjrt.sync()
    programs.clear()
    torch_pjrt.sync(x.index_add(0, torch.arange(SIZE, device=DEVICE), x))
    assert "aten::index_add" in programs[-1]
    assert ", over %" not in programs[-1]


def test_a_mistake_leaves_what_it_was() -> None:
    x, rows = (t.to(DEVICE) for t in given(torch.float32))
    before = x.cpu()
    with pytest.raises(IndexError, match="index"):
        x.index_copy(0, torch.tensor([SIZE], device=DEVICE), rows[:1]).cpu()
    assert torch.equal(x.cpu(), before)
