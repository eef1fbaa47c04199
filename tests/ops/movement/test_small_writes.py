"""PyTorch's kernel writes a small part of a large tensor in place, where XLA would copy all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt

pytestmark = [pytest.mark.host_memory, pytest.mark.compiled, pytest.mark.cpu_arithmetic]
DEVICE = "pjrt"
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.bool, torch.complex64)


def shifted(x: Tensor) -> None:
    x[1:5] = x[:4].clone()


def in_turn(x: Tensor) -> None:
    for row in range(1, 5):
        x[row] = x[row - 1] + x[row]


def over_itself(x: Tensor) -> None:
    x[2:4] = x[3:5].flip(0)
    x[:2].copy_(x[2:4].clone())


Write = Callable[[Tensor], object]
WRITES: dict[str, Write] = {
    "a row": lambda x: x[3].copy_(x.new_ones(x.shape[1:])),
    "rows": lambda x: x[3:5].fill_(True),
    "a column": lambda x: x[:, 2].copy_(x[0, 0, 0]),
    "one of the last": lambda x: x[..., 5].zero_(),
    "steps": lambda x: x[::16, 1].copy_(x[1, 1]),
    "turned": lambda x: x.transpose(0, 1)[2].copy_(x[:, 0]),
    "multiplied": lambda x: x.narrow(1, 4, 1).mul_(x[:, 1:2]),
    "a diagonal": lambda x: x[..., 0].diagonal().copy_(x[0, 0, 0]),
    "an element": lambda x: x[5, 6, 7].fill_(True),
    "none": lambda x: x[3:3].fill_(True),
    "shifted": shifted,
    "in turn": in_turn,
    "over itself": over_itself,
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def large(dtype: torch.dtype, rows: int = 128) -> Tensor:
    x = torch.randn(rows, 16, 32)
    return x > 0 if dtype == torch.bool else (x * 9).to(dtype)


def lies(x: Tensor) -> list[Tensor]:
    """Returns x row-major, transposed, as part of a larger tensor, and as every second element of one."""
    return [x, x.mT.contiguous().mT, torch.stack([x, x])[1], torch.stack([x, x], -1)[..., 0]]


@each_dtype
@each_write
@pytest.mark.sampled(3)
def test_what_is_written(write: Write, dtype: torch.dtype) -> None:
    ways = len(lies(large(dtype))) if dtype == torch.bfloat16 else 1
    for x, mine in zip(lies(large(dtype))[:ways], lies(large(dtype)), strict=False):
        mine.copy_(x)
        on_device = mine.to(DEVICE)
        before, view = on_device + 0, on_device[1:]
        compiled = mine.clone(memory_format=torch.preserve_format)
        expected = x.clone(memory_format=torch.preserve_format)
        write(expected)
        write(on_device)
        torch._dynamo.reset()
        torch.compile(write, backend="pjrt", fullgraph=True)(compiled)
        assert torch.equal(on_device.cpu(), expected)
        assert torch.equal(view.cpu(), expected[1:])
        assert torch.equal(before.cpu(), x + 0)
        assert torch.equal(compiled, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_at_places_that_vary(dtype: torch.dtype) -> None:
    x = large(dtype)
    mine, update = x.to(DEVICE), torch.ones(16, 32, dtype=dtype, device=DEVICE)
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for place in (3, 90, 0, 127, 64):
        mine[place] = update
        torch_pjrt.sync(mine)
        x[place] = 1
        assert torch.equal(mine.cpu(), x)
    assert 1 <= torch_pjrt.metrics()["graphs_compiled"] <= 2


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_cache_keeps_its_memory(dtype: torch.dtype, device: str, programs: list[str]) -> None:
    def step(cache: Tensor, key: Tensor) -> Tensor:
        cache[:, 5:6] = key
        cache.narrow(1, 7, 1).mul_(key)
        return cache[:, :8].sum(1)

    x, key = large(dtype, rows=130), large(dtype, rows=130)[:, :1]
    cache = x.clone().to(device)
    memory = cache.data_ptr()
    got = torch.compile(step, backend="pjrt")(cache, key.to(device))
    torch.testing.assert_close(got.cpu(), step(x, key))
    assert torch.equal(cache.cpu(), x)
    assert device == DEVICE or cache.data_ptr() == memory
    written = [line for line in programs[-1].splitlines() if "torch_pjrt::write_strided(" in line]
    # XLA writes in place over float32 that it doesn't read.
    assert len(written) == (2 if dtype == torch.bfloat16 else 1)
    assert all("output_operand_alias<" in line for line in written)


def test_what_stays_xlas(programs: list[str]) -> None:
    def changed(x: Tensor, y: Tensor) -> None:
        x[:64] = 1  # a large part
        y[0] = 2  # part of a small tensor

    x, y = large(torch.bfloat16, rows=131).to(DEVICE), large(torch.bfloat16, rows=9).to(DEVICE)
    torch_pjrt.sync()
    changed(x, y)
    torch_pjrt.sync()
    assert "torch_pjrt::write_strided(" not in programs[-1]
